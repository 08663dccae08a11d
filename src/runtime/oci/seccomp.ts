/**
 * The system calls that a sandbox may make. Everything that is not named is refused with EPERM, as if the caller lacked a
 * privilege. Left out on purpose: mounts and new namespaces, kernel keys, modules, kexec, bpf, perf, userfaultfd, file
 * handles, clocks of the host, swap, quotas, the own requests of btrfs, and io_uring, which escapes this filter and cannot be
 * checkpointed.
 */
const allowed = `
  accept accept4 access adjtimex alarm arch_prctl arm_fadvise64_64 arm_sync_file_range bind breakpoint brk cacheflush
  cachestat capget capset chdir chmod chown chown32 clock_getres clock_getres_time64 clock_gettime clock_gettime64
  clock_nanosleep clock_nanosleep_time64 close close_range connect copy_file_range creat dup dup2 dup3 epoll_create
  epoll_create1 epoll_ctl epoll_ctl_old epoll_pwait epoll_pwait2 epoll_wait epoll_wait_old eventfd eventfd2 execve
  execveat exit exit_group faccessat faccessat2 fadvise64 fadvise64_64 fallocate fanotify_mark fchdir fchmod fchmodat
  fchmodat2 fchown fchown32 fchownat fcntl fcntl64 fdatasync fgetxattr flistxattr flock fork fremovexattr fsetxattr
  fstat fstat64 fstatat64 fstatfs fstatfs64 fsync ftruncate ftruncate64 futex futex_requeue futex_time64 futex_wait
  futex_waitv futex_wake futimesat get_robust_list get_thread_area getcpu getcwd getdents getdents64 getegid getegid32
  geteuid geteuid32 getgid getgid32 getgroups getgroups32 getitimer getpeername getpgid getpgrp getpid getppid
  getpriority getrandom getresgid getresgid32 getresuid getresuid32 getrlimit getrusage getsid getsockname getsockopt
  gettid gettimeofday getuid getuid32 getxattr inotify_add_watch inotify_init inotify_init1 inotify_rm_watch
  io_cancel io_destroy io_getevents io_pgetevents io_pgetevents_time64 io_submit ioprio_get ioprio_set
  ipc kcmp kill lchown lchown32 lgetxattr link linkat
  listen listxattr llistxattr lremovexattr lseek _llseek lsetxattr lstat lstat64 madvise map_shadow_stack membarrier
  memfd_create mincore mkdir mkdirat mknod mknodat mlock mlock2 mlockall mmap mmap2 mprotect mq_getsetattr
  mq_notify mq_open mq_timedreceive mq_timedreceive_time64 mq_timedsend mq_timedsend_time64 mq_unlink mremap mseal
  msgctl msgget msgrcv msgsnd msync munlock munlockall munmap name_to_handle_at nanosleep newfstatat _newselect open
  openat openat2 pause pidfd_getfd pidfd_open pidfd_send_signal pipe pipe2 pkey_alloc pkey_free pkey_mprotect poll
  ppoll ppoll_time64 prctl pread64 preadv preadv2 prlimit64 process_madvise process_mrelease process_vm_readv
  process_vm_writev pselect6 pselect6_time64 ptrace pwrite64 pwritev pwritev2 read readahead readlink readlinkat readv
  recv recvfrom recvmmsg recvmmsg_time64 recvmsg remap_file_pages removexattr rename renameat renameat2 restart_syscall
  riscv_flush_icache riscv_hwprobe rmdir rseq rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo rt_sigreturn
  rt_sigsuspend rt_sigtimedwait rt_sigtimedwait_time64 rt_tgsigqueueinfo sched_get_priority_max sched_get_priority_min
  sched_getaffinity sched_getattr sched_getparam sched_getscheduler sched_rr_get_interval sched_rr_get_interval_time64
  sched_setaffinity sched_setattr sched_setparam sched_setscheduler sched_yield seccomp select semctl semget semop
  semtimedop semtimedop_time64 send sendfile sendfile64 sendmmsg sendmsg sendto set_robust_list set_thread_area
  set_tid_address setfsgid setfsgid32 setfsuid setfsuid32 setgid setgid32 setgroups setgroups32 setitimer setpgid
  setpriority setregid setregid32 setresgid setresgid32 setresuid setresuid32 setreuid setreuid32 setrlimit setsid
  setsockopt setuid setuid32 setxattr shmat shmctl shmdt shmget shutdown sigaltstack signalfd signalfd4 sigprocmask
  sigreturn socketpair splice stat stat64 statfs statfs64 statx symlink symlinkat sync sync_file_range sync_file_range2
  syncfs sysinfo tee tgkill time timer_create timer_delete timer_getoverrun timer_gettime timer_gettime64 timer_settime
  timer_settime64 timerfd_create timerfd_gettime timerfd_gettime64 timerfd_settime timerfd_settime64 times tkill
  truncate truncate64 ugetrlimit umask uname unlink unlinkat utime utimensat utimensat_time64 utimes vfork vmsplice
  wait4 waitid waitpid write writev chroot
`

/**
 * Refused as if the kernel did not know them, so that callers fall back: libc from clone3 to clone, libuv from io_uring, databases
 * from io_setup to threads. The contexts of io_setup are few for the whole machine. CRIU does not save Landlock rules: a
 * process that had confined itself would run on without them.
 */
const absent = [
  ...['clone3', 'io_setup', 'io_uring_setup', 'io_uring_enter', 'io_uring_register'],
  ...['landlock_add_rule', 'landlock_create_ruleset', 'landlock_restrict_self'],
]

const EPERM = 1
const ENOSYS = 38
/** CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET. */
const namespaceFlags = 0x7e020000
/** AF_UNIX, AF_INET, AF_INET6, AF_NETLINK. Not AF_VSOCK, AF_ALG, AF_PACKET and the rest. */
const socketFamilies = [1, 2, 10, 16]
/** PER_LINUX, UNAME26, PER_LINUX32, the last two together, and the query: none of them turns off address randomisation. */
const personalities = [0x0, 0x0008, 0x20000, 0x20008, 0xffffffff]

/** The type of the requests of btrfs (ioctl(2)), which would let a sandbox make subvolumes in a volume: those have no limit. */
const btrfsType = 0x94
/** Requests of this type that all file systems share: FICLONE, FICLONERANGE, FIDEDUPERANGE. */
const cloneRequests = [0x40049409, 0x4020940d, 0xc0189436]
const requestBits = 0xffffffff
const typeShift = 8
const typeBits = [0, 1, 2, 3, 4, 5, 6, 7]

/** The `linux.seccomp` object of an OCI configuration; only the native architecture is served. */
export function seccompProfile() {
  return {
    defaultAction: 'SCMP_ACT_ERRNO',
    defaultErrnoRet: EPERM,
    syscalls: [
      { names: allowed.trim().split(/\s+/), action: 'SCMP_ACT_ALLOW' },
      { names: absent, action: 'SCMP_ACT_ERRNO', errnoRet: ENOSYS },
      {
        names: ['clone'],
        action: 'SCMP_ACT_ALLOW',
        args: [{ index: 0, value: namespaceFlags, valueTwo: 0, op: 'SCMP_CMP_MASKED_EQ' }],
      },
      ...allowedWith('socket', socketFamilies),
      ...allowedWith('personality', personalities),
      // A filter has no `not`: another type differs in one of its bits.
      ...typeBits
        .map((bit) => 1 << (typeShift + bit))
        .map((mask) => allowedRequest(mask, ~(btrfsType << typeShift) & mask)),
      ...cloneRequests.map((request) => allowedRequest(requestBits, request)),
    ],
  }
}

/** ioctl is allowed when the bits of `mask` in its request are `value`. */
function allowedRequest(mask: number, value: number) {
  return {
    names: ['ioctl'],
    action: 'SCMP_ACT_ALLOW',
    args: [{ index: 1, value: mask, valueTwo: value, op: 'SCMP_CMP_MASKED_EQ' }],
  }
}

/** A system call is allowed when its first argument is one of `values`. */
function allowedWith(name: string, values: readonly number[]) {
  return values.map((value) => ({
    names: [name],
    action: 'SCMP_ACT_ALLOW',
    args: [{ index: 0, value, op: 'SCMP_CMP_EQ' }],
  }))
}

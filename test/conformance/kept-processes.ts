import type { KeptRow } from './kept-rows.ts'

/** Processes, their terminals, timers and signals. */
export const keptProcesses: readonly KeptRow[] = [
  {
    name: 'pseudo terminals: numbers with holes, sizes, owners, modes, settings, and what was typed and not read',
    make: `
pairs = [pty.openpty() for _ in range(5)]
for index in (0, 2): [os.close(fd) for fd in pairs[index]]
left = [pairs[index] for index in (1, 3, 4)]
for index, (_, slave) in enumerate(left):
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 30 + index, 90, 0, 0))
    settings = termios.tcgetattr(slave)
    settings[3] &= ~termios.ECHO
    termios.tcsetattr(slave, termios.TCSANOW, settings)
os.fchown(left[0][1], 7, 5), os.fchmod(left[0][1], 0o640)
names = [os.ttyname(slave) for _, slave in left]
stats = [os.stat(name) for name in names]`,
    check: `
assert names == [os.ttyname(slave) for _, slave in left], names
for index, (master, slave) in enumerate(left):
    assert struct.unpack("HHHH", fcntl.ioctl(slave, termios.TIOCGWINSZ, bytes(8)))[:2] == (30 + index, 90)
    assert not termios.tcgetattr(slave)[3] & termios.ECHO
    now = os.stat(names[index])
    assert (now.st_uid, now.st_gid, now.st_mode, now.st_rdev) == (stats[index].st_uid, stats[index].st_gid, stats[index].st_mode, stats[index].st_rdev), now
    os.write(master, b"line\\n")
    assert os.read(slave, 9) == b"line\\n"`,
  },
  {
    name: 'a session with its controlling terminal and its foreground group',
    make: `
pid, master = pty.fork()
if pid == 0:
    os.execv("/bin/sh", ["sh", "-c", "trap 'echo resized' WINCH; echo up; while read line; do echo got $line; done"])
until(lambda: b"up" in os.read(master, 100))
group = os.tcgetpgrp(master)`,
    check: `
assert os.getsid(pid) == pid and os.tcgetpgrp(master) == group == pid
os.write(master, b"x\\n")
seen = b""
while b"got x" not in seen: seen += os.read(master, 100)
os.write(master, b"\\x03")
until(lambda: os.waitpid(pid, os.WNOHANG)[0] == pid)`,
  },
  {
    name: 'pidfd of a child that runs',
    make: `
pid = child(lambda: None)
fd = os.pidfd_open(pid)`,
    check: `
assert quiet(fd)
signal.pidfd_send_signal(fd, signal.SIGKILL)
assert select.select([fd], [], [], 10)[0] == [fd] and os.waitid(os.P_PIDFD, fd, os.WEXITED).si_status == 9`,
  },
  {
    name: 'timers: timerfd, setitimer, timer_create, alarm; what was left of them, and expirations that nobody has read',
    make: `
def timerfd(clock, first, interval):
    fd = called(libc.timerfd_create(clock, os.O_NONBLOCK))
    called(libc.timerfd_settime(fd, 0, struct.pack("qqqq", interval, 0, first // 10**9, first % 10**9), None))
    return fd
expired = timerfd(1, 1, 3000)
far = timerfd(1, 5000 * 10**9, 0)
wall = timerfd(0, 5000 * 10**9, 7)
signal.setitimer(signal.ITIMER_REAL, 4000, 3)
signal.setitimer(signal.ITIMER_VIRTUAL, 4000, 3)
event = struct.pack("qii48x", 42, signal.SIGUSR2, 0)
timer = ctypes.c_void_p()
called(libc.timer_create(1, event, ctypes.byref(timer)))
called(libc.timer_settime(timer, 0, struct.pack("qqqq", 9, 0, 6000, 0), None))
assert select.select([expired], [], [], 10)[0]`,
    check: `
def left(fd):
    value = ctypes.create_string_buffer(32)
    called(libc.timerfd_gettime(fd, value))
    return struct.unpack("qqqq", value.raw)
assert struct.unpack("Q", os.read(expired, 8))[0] == 1 and left(expired)[0] == 3000
assert 4000 < left(far)[2] <= 5000 and quiet(far)
assert left(wall)[0] == 7 and 3000 < left(wall)[2] <= 5000
first, interval = signal.getitimer(signal.ITIMER_REAL)
assert 3000 < first <= 4000 and interval == 3
assert signal.getitimer(signal.ITIMER_VIRTUAL)[1] == 3
value = ctypes.create_string_buffer(32)
called(libc.timer_gettime(timer, value))
seconds = struct.unpack("qqqq", value.raw)
assert seconds[0] == 9 and 5000 < seconds[2] <= 6000, seconds`,
  },
  {
    name: 'signals: masks, handlers, pending ones with what they carry, signalfd, an alternate stack',
    make: `
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGRTMIN, signal.SIGRTMIN + 1, signal.SIGUSR1])
mask = struct.pack("Q", 1 << (signal.SIGRTMIN - 1) | 1 << (signal.SIGUSR1 - 1))
fd = called(libc.signalfd(-1, mask + bytes(120), os.O_NONBLOCK))
for value in (11, 12): called(libc.sigqueue(os.getpid(), int(signal.SIGRTMIN), ctypes.c_void_p(value)))
called(libc.sigqueue(os.getpid(), int(signal.SIGRTMIN) + 1, ctypes.c_void_p(13)))
os.kill(os.getpid(), signal.SIGUSR1)
signal.signal(signal.SIGHUP, signal.SIG_IGN)
before = [field("self", name) for name in ("SigPnd", "ShdPnd", "SigBlk", "SigIgn", "SigCgt")]`,
    check: `
assert before == [field("self", name) for name in ("SigPnd", "ShdPnd", "SigBlk", "SigIgn", "SigCgt")]
found = []
while not quiet(fd):
    info = os.read(fd, 128)
    found.append((struct.unpack_from("I", info)[0], struct.unpack_from("i", info, 44)[0]))
assert found[0][0] == signal.SIGUSR1 and [value for _, value in found[1:]] == [11, 12], found
info = signal.sigtimedwait([signal.SIGRTMIN + 1], 5)
assert info and info.si_pid == os.getpid()`,
  },
  {
    name: 'children that have ended and were not waited for, with their exit codes and signals; stopped ones; their groups and sessions',
    make: `
exited = os.fork() or os._exit(3)
killed = os.fork() or os.kill(os.getpid(), signal.SIGKILL)
stopped, group, session = child(lambda: None), child(os.setpgrp), child(os.setsid)
os.kill(stopped, signal.SIGSTOP)
os.waitpid(stopped, os.WUNTRACED)
until(lambda: field(exited, "State")[0] == "Z" and field(killed, "State")[0] == "Z")`,
    check: `
assert field(exited, "State")[0] == "Z" and field(stopped, "State")[0] == "T"
assert os.waitstatus_to_exitcode(os.waitpid(exited, 0)[1]) == 3 and os.waitstatus_to_exitcode(os.waitpid(killed, 0)[1]) == -9
os.kill(stopped, signal.SIGCONT)
until(lambda: field(stopped, "State")[0] == "S")
assert os.getpgid(group) == group and os.getsid(session) == session and os.getsid(group) == os.getsid(0)`,
  },
  {
    name: 'seccomp: strict, and filters of one and several layers; no_new_privs',
    make: `
def filtered(number, error):
    # Loads the number of the call; answers that one with the error.
    code = struct.pack("HBBI", 0x20, 0, 0, 0) + struct.pack("HBBI", 0x15, 0, 1, number) + struct.pack("HBBI", 6, 0, 0, 0x50000 | error) + struct.pack("HBBI", 6, 0, 0, 0x7FFF0000)
    buffer = ctypes.create_string_buffer(code)
    called(libc.prctl(38, 1, 0, 0, 0))
    called(libc.prctl(22, 2, ctypes.byref(ctypes.create_string_buffer(struct.pack("HxxxxxxQ", 4, ctypes.addressof(buffer)))), 0, 0))
def layers():
    filtered(83, 77), filtered(84, 78)
    def told(*_):
        for call in (os.mkdir, os.rmdir):
            try: call("/root/never")
            except OSError as error: os.write(answer[1], b"%d " % error.errno)
    signal.signal(signal.SIGUSR1, told)
answer = os.pipe()
pid = child(layers)
before = [field(pid, name) for name in ("Seccomp", "Seccomp_filters", "NoNewPrivs")]`,
    check: `
assert before == [field(pid, name) for name in ("Seccomp", "Seccomp_filters", "NoNewPrivs")], before
os.kill(pid, signal.SIGUSR1)
seen = b""
while len(seen) < 6: seen += os.read(answer[0], 9)
assert seen == b"77 78 "`,
  },
  {
    name: 'clocks: the monotonic ones go on from the dump, the wall clock is right; threads that sleep wake',
    make: `
before = {clock: time.clock_gettime(clock) for clock in (time.CLOCK_MONOTONIC, time.CLOCK_BOOTTIME, time.CLOCK_REALTIME)}
slept = []
thread = threading.Thread(target=lambda: (time.sleep(1.5), slept.append(1)))
thread.start()`,
    check: `
for clock, then in before.items(): assert then <= time.clock_gettime(clock) < then + 3600, clock
thread.join()
assert slept == [1]`,
  },
  {
    name: 'credentials and attributes of processes: ids, groups, capabilities, limits, niceness, umask, names, parent-death signal',
    make: `
def changed():
    os.umask(0o037), os.nice(5)
    called(libc.prctl(15, b"renamed", 0, 0, 0)), called(libc.prctl(1, signal.SIGUSR1, 0, 0, 0)), called(libc.prctl(36, 1, 0, 0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, 200))
    os.setgroups([5, 6, 7]), os.setresgid(11, 12, 13), os.setresuid(21, 22, 23)
pid = child(changed)
def told():
    names = ("Name", "Umask", "Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "NoNewPrivs", "Threads")
    return [field(pid, name) for name in names] + [os.getpriority(os.PRIO_PROCESS, pid), open(f"/proc/{pid}/limits").read(), open(f"/proc/{pid}/cmdline").read()]
before = told()`,
    check: `
assert before == told(), (before, told())`,
  },
  {
    name: 'programs, folders and libraries that were removed while in use; a changed root',
    make: `
import shutil
shutil.copy("/bin/sleep", "/root/sleep")
sleeper = subprocess.Popen(["/root/sleep", "5000"])
until(lambda: os.readlink(f"/proc/{sleeper.pid}/exe") == "/root/sleep")
os.unlink("/root/sleep")
os.makedirs("/root/jail")
def jailed(): os.chroot("/root/jail"), os.chdir("/")
jail = child(jailed)
os.mkdir("/root/going")
def inside(): os.chdir("/root/going")
lost = child(inside)
os.rmdir("/root/going")`,
    check: `
assert sleeper.poll() is None and os.readlink(f"/proc/{sleeper.pid}/exe").startswith("/root/sleep")
assert os.readlink(f"/proc/{jail}/root") == "/root/jail"
assert os.readlink(f"/proc/{lost}/cwd").startswith("/root/going") and not os.path.exists("/root/going")`,
  },
  {
    name: 'the class of input and output (ionice), of each thread',
    make: `
libc.syscall.restype = ctypes.c_long
def numbers(): return {"x86_64": (251, 252), "aarch64": (30, 31)}[os.uname().machine]
ioprio_set, ioprio_get = numbers()
chosen = {}
def choose(priority):
    called(libc.syscall(ioprio_set, 1, 0, priority))
    chosen[threading.get_native_id()] = priority
def work():
    choose(2 << 13 | 7), told.set()
    while True: signal.pause()
told = threading.Event()
threading.Thread(target=work, daemon=True).start()
told.wait(), choose(3 << 13)
plain = child(lambda: called(libc.syscall(ioprio_set, 1, 0, 0)))`,
    check: `
assert {tid: libc.syscall(ioprio_get, 1, tid) for tid in chosen} == chosen
assert libc.syscall(ioprio_get, 1, plain) == 0`,
  },
]

# lines: 2
/^extern int prepare_file_locks(int pid);/a\
struct task_restore_args;\
extern int prepare_posix_locks(int pid, struct task_restore_args *ta);

# lines: 11
#
# POSIX locks belong to a process and a file, not to a descriptor: the first close of any descriptor of that file drops them all. The
# restorer closes those of the mapped files, so it has to take the locks afterwards.
/^struct task_restore_args {/i\
struct restore_posix_lock {\
	int fd;\
	short type;\
	int64_t start;\
	int64_t len;\
};\

/^	unsigned int posix_timers_n;/a\
\
	struct restore_posix_lock *posix_locks;\
	unsigned int posix_locks_n;\


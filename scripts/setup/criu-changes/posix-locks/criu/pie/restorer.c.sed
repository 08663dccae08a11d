# lines: 29
/^int cleanup_current_inotify_events(struct task_restore_args \*task_args)/i\
/*\
 * After a stage that all processes have passed, since some may share their descriptors. Nobody else runs, so none of these\
 * locks has to wait: F_SETLK shows it when one is held from outside.\
 */\
static int restore_posix_locks(struct task_restore_args *args)\
{\
	unsigned int i;\
\
	for (i = 0; i < args->posix_locks_n; i++) {\
		struct restore_posix_lock *lock = &args->posix_locks[i];\
		struct flock flock = {\
			.l_type = lock->type,\
			.l_whence = SEEK_SET,\
			.l_start = lock->start,\
			.l_len = lock->len,\
		};\
		int ret = sys_fcntl(lock->fd, F_SETLK, (long)&flock);\
\
		if (ret) {\
			pr_err("Can't set a POSIX lock on fd %d: %d\\n", lock->fd, ret);\
			return -1;\
		}\
	}\
	return 0;\
}\

/^	if (wait_helpers(args) < 0)/i\
	if (restore_posix_locks(args))\
		goto core_restore_end;\


# lines: 4
/^	if (prepare_posix_timers(pid, ta, core))/i\
	if (prepare_posix_locks(pid, ta))\
		return -1;\

/^	RST_MEM_FIXUP_PPTR(task_args->posix_timers);/a\
	RST_MEM_FIXUP_PPTR(task_args->posix_locks);

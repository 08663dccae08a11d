# lines: 2
/^static void restore_sched_info(struct rst_sched_param/,/^}/{
/^	sys_setpriority/i\
	if (p->ioprio)\
		sys_ioprio_set(1, 0, p->ioprio);
}

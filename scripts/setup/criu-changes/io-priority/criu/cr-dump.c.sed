# lines: 9
#
# A thread that never chose a class follows its niceness, which comes back anyway. 1 is IOPRIO_WHO_PROCESS, and the class stands above
# thirteen bits.
/^static int dump_sched_info(int pid/,/^}/{
/^	errno = 0;/i\
	ret = syscall(__NR_ioprio_get, 1, pid);\
	if (ret < 0) {\
		pr_perror("Can't get the I/O priority of %d", pid);\
		return -1;\
	}\
	tc->has_ioprio = ret >> 13 != 0;\
	if (tc->has_ioprio)\
		tc->ioprio = ret;\

}

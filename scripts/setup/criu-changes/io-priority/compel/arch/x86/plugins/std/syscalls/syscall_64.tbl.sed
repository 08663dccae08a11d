# lines: 1
/^__NR_setpriority/a\
__NR_ioprio_set			251		sys_ioprio_set		(int which, int who, int ioprio)

# lines: 1
/^setpriority/a\
ioprio_set			30	314	(int which, int who, int ioprio)

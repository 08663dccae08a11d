# lines: 1
/^struct rst_sched_param {/a\
	int ioprio;

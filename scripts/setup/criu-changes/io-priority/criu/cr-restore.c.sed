# lines: 1
/^static int prep_sched_info(struct rst_sched_param/,/^}/s/^{/{\n	sp->ioprio = tc->has_ioprio ? tc->ioprio : 0;/

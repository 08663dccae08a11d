# lines: 2
#
# The restorer takes the complement of a descriptor for a queue whose last event has to stay.
/^static int collect_inotify_fds(struct task_restore_args/,/^}/s/^		\*inotify_fd = fle->fe->fd;/		*inotify_fd = inotify_overflows(d) ? ~fle->fe->fd : fle->fe->fd;/

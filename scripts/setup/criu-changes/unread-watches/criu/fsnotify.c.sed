# lines: 55
#
# Events that nobody has read cannot be saved: who reads them takes them away. A program to which some had come finds in their
# place that its queue has overflowed, which says that it may have missed any. The kernel puts that behind a queue that is full; so
# it is filled, and the restorer reads all but the last.
/^static int dump_one_inotify(int lfd/,/^}/s/^		pr_warn(.*will be dropped.*/		ie.has_unread = ie.unread = true;/
/^struct fsnotify_file_info {/a\
	/* Of an inotify that was opened: its queue is full, and the last event says so. */\
	bool overflows;
/^static int restore_one_fanotify(int fd/i\
/* Larger queues are not filled, and their events are lost. */\
#define FILL_EVENTS_MAX (1 << 18)\
\
static bool is_full(int fd, int *queued)\
{\
	int before = *queued;\
\
	return ioctl(fd, FIONREAD, queued) == 0 && *queued == before;\
}\
\
/*\
 * Opens and closes a folder that no program watches, in turns, since the kernel merges an event with one before it that is the\
 * same.\
 */\
static bool overflow_inotify(int fd)\
{\
	static const char folder[] = "/proc/self";\
	int wd, i, queued = 0;\
	bool full = false;\
\
	wd = inotify_add_watch(fd, folder, IN_OPEN | IN_CLOSE_NOWRITE);\
	if (wd < 0) {\
		pr_perror("Can't watch %s", folder);\
		return false;\
	}\
	for (i = 0; i < FILL_EVENTS_MAX && !full; i += 2) {\
		int opened = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);\
\
		if (opened < 0) {\
			pr_perror("Can't open %s", folder);\
			break;\
		}\
		close(opened);\
		full = is_full(fd, &queued);\
	}\
	inotify_rm_watch(fd, wd);\
	if (!full)\
		pr_warn("The queue of inotify %d cannot be filled\\n", fd);\
	return full;\
}\

s/^	tmp = inotify_init1(info->ife->flags);/	info->overflows = false;\
&/
/^static int open_inotify_fd(struct file_desc \*d/,/^}/{
/^	if (restore_fown(tmp, info->ife->fown))/i\
	if (info->ife->unread)\
		info->overflows = overflow_inotify(tmp);\

}
/^static struct file_desc_ops inotify_desc_ops = {/i\
/* Once the process has opened it. */\
bool inotify_overflows(struct file_desc *d)\
{\
	return container_of(d, struct fsnotify_file_info, d)->overflows;\
}\


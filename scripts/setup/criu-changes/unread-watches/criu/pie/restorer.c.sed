# lines: 27
/^#include <linux\/aio_abi.h>/a\
#include <asm/ioctls.h>
/^#define EVENT_BUFF_SIZE/a\
\
/* What came before the overflow is noise of the restore. Whole events fit into what is asked for, so that the last one stays. */\
static int keep_last_inotify_event(int inotify_fd)\
{\
	char buf[EVENT_BUFF_SIZE];\
	int left;\
\
	if (sys_ioctl(inotify_fd, FIONREAD, (unsigned long)&left)) {\
		pr_err("Failed to ask for the size of inotify events\\n");\
		return -1;\
	}\
	left -= sizeof(struct inotify_event);\
	while (left > 0) {\
		int ret = sys_read(inotify_fd, buf, left < (int)sizeof(buf) ? left : (int)sizeof(buf));\
\
		if (ret <= 0) {\
			pr_err("Failed to read inotify events\\n");\
			return -1;\
		}\
		left -= ret;\
	}\
	return 0;\
}
/^static int cleanup_inotify_events(int inotify_fd)/,/^}/{
/^	while (1) {/i\
	if (inotify_fd < 0)\
		return keep_last_inotify_event(~inotify_fd);\

}

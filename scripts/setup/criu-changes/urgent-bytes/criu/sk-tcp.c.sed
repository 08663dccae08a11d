# lines: 17
#
# The kernel tells of an urgent byte (MSG_OOB) that nobody has read, but has no way to put one back.
/^#include <string.h>/a\
#include <poll.h>
/^int dump_one_tcp(int fd/i\
static bool has_urgent_byte(int fd)\
{\
	struct pollfd urgent = { .fd = fd, .events = POLLPRI };\
	char byte;\
\
	if (poll(&urgent, 1, 0) == 1 && (urgent.revents & POLLPRI))\
		return true;\
	/* It is announced and has not come yet. */\
	return recv(fd, &byte, 1, MSG_OOB | MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN;\
}\

/^int dump_one_tcp(int fd/,/^}/{
/^	pr_info("Dumping TCP connection/i\
	if (has_urgent_byte(fd)) {\
		pr_err("Urgent byte in queue\\n");\
		return -1;\
	}\

}

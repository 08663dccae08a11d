# lines: 29
#
# Three changes of criu/uffd.c, for restored processes that change their memory map while their memory comes.
#
# One that gives memory back (madvise, munmap) goes on as soon as its event is read, so the range that it gave back may be unmapped when the daemon unregisters
# it: the call fails, the daemon ends, and what it had not brought yet becomes zeros. Or something with pages to come was
# moved there meanwhile, and loses them. Not to unregister is right in each case, since a fault on a page that is not to come is
# answered with zeros.
s/msg->event == UFFD_EVENT_REMOVE && ioctl(/0 \&\& ioctl(/

# Lengths of 2 GiB and more do not fit into an int.
s/drop_iovs(\(.*\), int len)/drop_iovs(\1, unsigned long len)/

# The kernel refuses to bring a page while the process changes its memory map (a fork, an unmap by another thread). CRIU leaves a page
# that was touched in that moment to its transfer in the background, and one of zeros to its own end: the thread waits for seconds. It
# is woken when nothing else is to do, and touches the page again.
/^struct lazy_pages_info {/,/^};/{
/^	bool exited;/a\
	/* A thread may wait for a page that the kernel refused to bring. */\
	bool refused;

}
/^static int uffd_check_op_error(/,/^}/{
/^	lp_debug(lpi, "%s: mcopy_rc/i\
	if (errno == EAGAIN)\
		lpi->refused = true;\

}
/^static int handle_requests(/i\
/* All threads that wait for a page: each that has not come is asked for again. */\
static void wake_refused(struct lazy_pages_info *lpi)\
{\
	struct uffdio_range all = {\
		.start = kdat.mmap_min_addr,\
		.len = kdat.task_size - kdat.mmap_min_addr,\
	};\
\
	if (!lpi->refused || lpi->exited)\
		return;\
	lpi->refused = false;\
	if (ioctl(lpi->lpfd.fd, UFFDIO_WAKE, &all))\
		lp_perror(lpi, "Can't wake threads");\
}\

/^static int handle_requests(/,/^}/{
/^		list_for_each_entry_safe(lpi, n, &lpis, l) {/i\
		list_for_each_entry(lpi, &lpis, l)\
			wake_refused(lpi);\

}

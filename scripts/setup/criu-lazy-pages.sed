# Two changes of criu/uffd.c, with which restored processes that give memory back (madvise, munmap) do not end the daemon
# that brings it.
#
# A process goes on as soon as its event is read, so the range that it gave back may be unmapped when the daemon unregisters
# it: the call fails, the daemon ends, and what it had not brought yet becomes zeros. Or something with pages to come was
# moved there meanwhile, and loses them. Not to unregister is right in each case, since a fault on a page that is not to come is
# answered with zeros.
s/msg->event == UFFD_EVENT_REMOVE && ioctl(/0 \&\& ioctl(/

# Lengths of 2 GiB and more do not fit into an int.
s/drop_iovs(\(.*\), int len)/drop_iovs(\1, unsigned long len)/

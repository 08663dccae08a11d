/*
 * What the FUSE file systems of one file have alike: answers, the mount, and a process that ends with the test. They speak the protocol of
 * linux/fuse.h without a library. See fuse(4).
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define MAX_WRITE (1 << 20)
#define MAX_PAGES (MAX_WRITE / 4096)

static int device, backing;
static char request[MAX_WRITE + 65536] __attribute__((aligned(4096)));

static void fatal(const char *what)
{
	perror(what);
	exit(1);
}

/* `error` is 0 or an errno. */
static void reply(const struct fuse_in_header *in, int error, const void *body, size_t length)
{
	struct fuse_out_header out = { .len = sizeof(out) + length, .error = -error, .unique = in->unique };
	struct iovec parts[] = { { &out, sizeof(out) }, { (void *)body, length } };

	/* ENOENT: the request was interrupted. */
	if (writev(device, parts, 2) < 0 && errno != ENOENT)
		fatal("answer");
}

static void reply_init(const struct fuse_in_header *in)
{
	struct fuse_init_out out = {
		.major = FUSE_KERNEL_VERSION, .minor = FUSE_KERNEL_MINOR_VERSION, .max_readahead = MAX_WRITE,
		.flags = FUSE_BIG_WRITES | FUSE_MAX_PAGES, .max_write = MAX_WRITE, .max_pages = MAX_PAGES, .time_gran = 1,
	};
	reply(in, 0, &out, sizeof(out));
}

/* Answers the requests that mean the same to all of them, and ENOSYS to those that nobody knows. */
static void reply_alike(const struct fuse_in_header *in)
{
	const struct fuse_open_out opened = { .open_flags = FOPEN_KEEP_CACHE };

	switch (in->opcode) {
	case FUSE_INIT:
		reply_init(in);
		break;
	case FUSE_OPEN:
		reply(in, 0, &opened, sizeof(opened));
		break;
	case FUSE_FLUSH:
	case FUSE_RELEASE:
		reply(in, 0, NULL, 0);
		break;
	case FUSE_FORGET:
	case FUSE_BATCH_FORGET:
	case FUSE_INTERRUPT:
		/* They want no answer. */
		break;
	default:
		reply(in, ENOSYS, NULL, 0);
	}
}

/* `how` is 0 or O_NONBLOCK, for the device. */
static void open_files(const char *backing_file, int how)
{
	device = open("/dev/fuse", O_RDWR | O_CLOEXEC | how);
	backing = open(backing_file, O_RDWR | O_CLOEXEC);
	if (device < 0 || backing < 0)
		fatal("open");
}

/* `locked` says which memory is never swapped out, see mlockall(2). */
static void prepare(int locked)
{
	/* A test that is killed must leave nothing that hangs. */
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
		fatal("prepare");
	/* What this allocates must not wait for writes that wait for this. Both want capabilities that root may lack: then it is less certain. */
	prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0);
	mlockall(locked);
}

/* Mounts it on a file, and says so. */
static void mount_on(const char *file, const char *name)
{
	char options[128], type[64];

	snprintf(options, sizeof(options), "fd=%d,rootmode=100600,user_id=0,group_id=0,allow_other", device);
	snprintf(type, sizeof(type), "fuse.%s", name);
	if (mount(name, file, type, MS_NOSUID | MS_NODEV, options) < 0)
		fatal("mount");
	puts("mounted");
	fflush(stdout);
}

/* Whether `request` has one now. Ends the process with the mount. */
static int has_request(void)
{
	ssize_t length = read(device, request, sizeof(request));

	if (length < 0 && errno == ENODEV)
		exit(0);
	if (length < 0 && errno != EINTR && errno != ENOENT && errno != EAGAIN)
		fatal("read");
	return length >= (ssize_t)sizeof(struct fuse_in_header);
}

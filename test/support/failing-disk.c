/*
 * A file whose disk fails: a FUSE file system of one file, mounted on a file, that passes everything to another file and fails as
 * the files in a folder of switches say: `write`, `read` and `sync` with EIO, `hang` without an answer until it is gone.
 *
 *     failing-disk BACKING-FILE MOUNT-FILE SWITCHES-FOLDER
 *
 * Prints a line once it is mounted, and ends by a signal, with which the mount ends too: all that waits for it gets an error.
 */
#define _GNU_SOURCE
#include "fuse-file.h"
#include <sys/statvfs.h>

#define HANG_POLL_US 10000

static int switches;
static char answer[MAX_WRITE] __attribute__((aligned(4096)));

static int is_on(const char *name)
{
	return faccessat(switches, name, F_OK, 0) == 0;
}

static void reply_result(const struct fuse_in_header *in, int result)
{
	reply(in, result < 0 ? errno : 0, NULL, 0);
}

static void reply_attributes(const struct fuse_in_header *in)
{
	struct stat of;

	if (fstat(backing, &of) < 0) {
		reply_result(in, -1);
		return;
	}
	struct fuse_attr_out out = { .attr_valid = 1, .attr = {
		.ino = 1, .size = of.st_size, .blocks = of.st_blocks, .mode = of.st_mode, .nlink = 1, .blksize = 4096,
		.atime = of.st_atime, .mtime = of.st_mtime, .ctime = of.st_ctime,
	} };
	reply(in, 0, &out, sizeof(out));
}

static void reply_statfs(const struct fuse_in_header *in)
{
	struct statvfs of;

	if (fstatvfs(backing, &of) < 0) {
		reply_result(in, -1);
		return;
	}
	struct fuse_statfs_out out = { .st = {
		.blocks = of.f_blocks, .bfree = of.f_bfree, .bavail = of.f_bavail, .files = 1, .bsize = of.f_bsize,
		.frsize = of.f_frsize, .namelen = 255,
	} };
	reply(in, 0, &out, sizeof(out));
}

static void do_read(const struct fuse_in_header *in, const struct fuse_read_in *wanted)
{
	ssize_t got = -1;

	errno = EIO;
	if (!is_on("read"))
		got = pread(backing, answer, wanted->size, wanted->offset);
	if (got < 0)
		reply_result(in, -1);
	else
		reply(in, 0, answer, got);
}

static void do_write(const struct fuse_in_header *in, const struct fuse_write_in *given)
{
	ssize_t put = -1;

	errno = EIO;
	if (!is_on("write"))
		put = pwrite(backing, given + 1, given->size, given->offset);
	if (put < 0) {
		reply_result(in, -1);
	} else {
		struct fuse_write_out out = { .size = put };
		reply(in, 0, &out, sizeof(out));
	}
}

static void do_lseek(const struct fuse_in_header *in, const struct fuse_lseek_in *wanted)
{
	off_t at = lseek(backing, wanted->offset, wanted->whence);
	struct fuse_lseek_out out = { .offset = at };

	if (at < 0)
		reply_result(in, -1);
	else
		reply(in, 0, &out, sizeof(out));
}

static void serve(const struct fuse_in_header *in)
{
	const void *body = in + 1;
	const struct fuse_setattr_in *set = body;
	const struct fuse_fallocate_in *blocks = body;

	while (is_on("hang"))
		usleep(HANG_POLL_US);
	switch (in->opcode) {
	case FUSE_GETATTR:
		reply_attributes(in);
		break;
	case FUSE_SETATTR:
		if (set->valid & FATTR_SIZE && ftruncate(backing, set->size) < 0)
			reply_result(in, -1);
		else
			reply_attributes(in);
		break;
	case FUSE_READ:
		do_read(in, body);
		break;
	case FUSE_WRITE:
		do_write(in, body);
		break;
	case FUSE_FSYNC:
		errno = EIO;
		reply_result(in, is_on("sync") ? -1 : fsync(backing));
		break;
	case FUSE_FALLOCATE:
		errno = EIO;
		reply_result(in, is_on("write") ? -1 : fallocate(backing, blocks->mode, blocks->offset, blocks->length));
		break;
	case FUSE_LSEEK:
		do_lseek(in, body);
		break;
	case FUSE_STATFS:
		reply_statfs(in);
		break;
	default:
		reply_alike(in);
	}
}

int main(int argc, char **argv)
{
	if (argc != 4)
		return 2;
	open_files(argv[1], 0);
	switches = open(argv[3], O_DIRECTORY | O_CLOEXEC);
	if (switches < 0)
		fatal("open");
	prepare(MCL_CURRENT | MCL_FUTURE);
	mount_on(argv[2], "failing-disk");
	for (;;)
		if (has_request())
			serve((const void *)request);
}

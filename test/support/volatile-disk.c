/*
 * A file whose disk forgets: a FUSE file system of one file, mounted on a file. What is written is kept apart until a flush (FUSE_FSYNC, which
 * a loop device sends for each flush of the file system on it) brings it to another file. A loss of power leaves of the rest what a disk
 * without a battery may leave: nothing, all that came first, or any blocks of 4 KiB, each in any version since the last flush.
 *
 *     volatile-disk BACKING-FILE MOUNT-FILE
 *
 * Prints `mounted`, and ends by a signal or with its standard input.
 * Commands on standard input, each answered by a line:
 *
 *     cut none|prefix|subset|all SEED AFTER   -> cut UNFLUSHED KEPT WRITES FLUSHES
 *     release                                 -> released
 *     lie                                     -> lying: flushes are answered and do nothing from now on
 *
 * The cut comes after so many more writes; the backing file does not change any more then, and no request is answered, so that nobody
 * believes in a flush. Once released, whatever still writes reads its own writes back until the program ends.
 */
#define _GNU_SOURCE
#include "fuse-file.h"
#include <poll.h>
#include <stdint.h>

#define BLOCK 4096
/* The cache of the disk, 1 GiB: a full one is written out, as that of a disk is. */
#define CACHE_BLOCKS (1U << 18)

static int is_cut, is_held, is_lying;
static off_t disk_bytes;
static char answer[MAX_WRITE + BLOCK] __attribute__((aligned(4096)));

/* Unflushed writes in their order: where each belongs, and what it says. `newest` is 0, or 1 + the last write of a block of the disk. */
static uint32_t *place, *newest, unflushed;
static char *cache;
static unsigned long writes, flushes;

/* The cut that is to come: 0, or how many writes from now. */
static unsigned long cut_after;
static char cut_mode[16];
static unsigned long long cut_seed;

static void *reserve(size_t length)
{
	void *got = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (got == MAP_FAILED)
		fatal("memory");
	return got;
}

static void keep(uint32_t entry)
{
	if (pwrite(backing, cache + (size_t)entry * BLOCK, BLOCK, (off_t)place[entry] * BLOCK) != BLOCK)
		fatal("write");
}

/* Brings all to the backing file. */
static void flush(void)
{
	for (uint32_t entry = 0; entry < unflushed; entry++) {
		if (newest[place[entry]] != entry + 1)
			continue;
		keep(entry);
		newest[place[entry]] = 0;
	}
	unflushed = 0;
}

static uint64_t next_random(uint64_t *state)
{
	/* splitmix64 */
	uint64_t z = (*state += 0x9e3779b97f4a7c15ULL);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
	return z ^ (z >> 31);
}

static void cut(void)
{
	const char *mode = cut_mode;
	uint64_t seed = cut_seed;
	uint32_t kept = 0, length = unflushed;
	/* In parts of 256. */
	unsigned share = 256;

	if (!strcmp(mode, "none"))
		length = 0;
	else if (!strcmp(mode, "prefix"))
		length = next_random(&seed) % (unflushed + 1);
	else if (!strcmp(mode, "subset"))
		share = next_random(&seed) % 257;
	else if (strcmp(mode, "all"))
		fatal("unknown kind of cut");
	for (uint32_t entry = 0; !is_cut && entry < length; entry++) {
		if (next_random(&seed) % 256 >= share)
			continue;
		keep(entry);
		kept++;
	}
	is_cut = is_held = 1;
	printf("cut %u %u %lu %lu\n", unflushed, kept, writes, flushes);
	fflush(stdout);
}

/* A block as whoever reads it sees it. */
static ssize_t read_block(uint32_t block, char *into)
{
	if (newest[block]) {
		memcpy(into, cache + (size_t)(newest[block] - 1) * BLOCK, BLOCK);
		return BLOCK;
	}
	return pread(backing, into, BLOCK, (off_t)block * BLOCK);
}

static int write_block(uint32_t block, unsigned from, unsigned length, const char *bytes)
{
	char whole[BLOCK];
	uint32_t entry;

	if (length < BLOCK && read_block(block, whole) != BLOCK)
		return -1;
	memcpy(whole + from, bytes, length);
	if (is_cut && newest[block]) {
		entry = newest[block] - 1;
	} else {
		if (unflushed == CACHE_BLOCKS) {
			errno = EIO;
			if (is_cut || is_lying)
				return -1;
			flush();
		}
		entry = unflushed++;
	}
	place[entry] = block;
	newest[block] = entry + 1;
	memcpy(cache + (size_t)entry * BLOCK, whole, BLOCK);
	return 0;
}

static void reply_attributes(const struct fuse_in_header *in)
{
	struct fuse_attr_out out = { .attr_valid = 1, .attr = {
		.ino = 1, .size = disk_bytes, .blocks = disk_bytes / 512, .mode = S_IFREG | 0600, .nlink = 1, .blksize = BLOCK,
	} };

	reply(in, 0, &out, sizeof(out));
}

static void do_read(const struct fuse_in_header *in, const struct fuse_read_in *wanted)
{
	uint64_t end = wanted->offset + wanted->size, first = wanted->offset / BLOCK;

	if (end > (uint64_t)disk_bytes)
		end = disk_bytes;
	if (wanted->offset >= end) {
		reply(in, 0, NULL, 0);
		return;
	}
	for (uint64_t block = first; block * BLOCK < end; block++) {
		if (read_block(block, answer + (block - first) * BLOCK) != BLOCK) {
			reply(in, EIO, NULL, 0);
			return;
		}
	}
	reply(in, 0, answer + wanted->offset % BLOCK, end - wanted->offset);
}

static void do_write(const struct fuse_in_header *in, const struct fuse_write_in *given)
{
	struct fuse_write_out out = { .size = given->size };
	const char *bytes = (const void *)(given + 1);
	uint64_t at = given->offset, end = at + given->size;

	if (end > (uint64_t)disk_bytes) {
		reply(in, ENOSPC, NULL, 0);
		return;
	}
	writes++;
	while (at < end) {
		unsigned from = at % BLOCK, length = BLOCK - from;

		if (length > end - at)
			length = end - at;
		if (write_block(at / BLOCK, from, length, bytes) < 0) {
			reply(in, EIO, NULL, 0);
			return;
		}
		at += length;
		bytes += length;
	}
	if (cut_after && !--cut_after)
		cut();
	reply(in, 0, &out, sizeof(out));
}

static void do_flush(const struct fuse_in_header *in)
{
	flushes++;
	if (!is_cut && !is_lying)
		flush();
	reply(in, 0, NULL, 0);
}

static void serve(const struct fuse_in_header *in)
{
	const void *body = in + 1;

	switch (in->opcode) {
	case FUSE_GETATTR:
	case FUSE_SETATTR:
		reply_attributes(in);
		break;
	case FUSE_READ:
		do_read(in, body);
		break;
	case FUSE_WRITE:
		do_write(in, body);
		break;
	case FUSE_FSYNC:
		do_flush(in);
		break;
	default:
		/* ENOSYS to fallocate: the kernel writes zeros instead. */
		reply_alike(in);
	}
}

/* 0 at the end of the input. */
static int obey(void)
{
	static char line[128];
	static size_t held;
	char *end;
	ssize_t got = read(STDIN_FILENO, line + held, sizeof(line) - 1 - held);

	if (got <= 0)
		return 0;
	held += got;
	line[held] = 0;
	end = strchr(line, '\n');
	if (!end)
		return held < sizeof(line) - 1;
	held = 0;
	if (sscanf(line, "cut %15s %llu %lu", cut_mode, &cut_seed, &cut_after) == 3) {
		if (!cut_after)
			cut();
	} else if (!strncmp(line, "release", 7)) {
		is_held = 0;
		puts("released");
		fflush(stdout);
	} else if (!strncmp(line, "lie", 3)) {
		is_lying = 1;
		puts("lying");
		fflush(stdout);
	} else {
		errno = EINVAL;
		fatal("command");
	}
	return 1;
}

int main(int argc, char **argv)
{
	struct stat of;

	if (argc != 3)
		return 2;
	open_files(argv[1], O_NONBLOCK);
	if (fstat(backing, &of) < 0)
		fatal("open");
	disk_bytes = of.st_size / BLOCK * BLOCK;
	prepare(MCL_CURRENT);
	place = reserve(CACHE_BLOCKS * sizeof(*place));
	newest = reserve(disk_bytes / BLOCK * sizeof(*newest));
	cache = reserve((size_t)CACHE_BLOCKS * BLOCK);
	mount_on(argv[2], "volatile-disk");
	for (;;) {
		struct pollfd ready[] = { { .fd = is_held ? -1 : device, .events = POLLIN }, { .fd = STDIN_FILENO, .events = POLLIN } };

		if (poll(ready, 2, -1) < 0 && errno != EINTR)
			fatal("poll");
		if (ready[1].revents && !obey())
			return 0;
		if (ready[0].revents && has_request())
			serve((const void *)request);
	}
}

/*
 * Draws random bytes as glibc 2.41 and Go 1.24 do: from the vDSO, whose state lies in memory of the process (vdso(7), and
 * include/uapi/linux/random.h for the parameters). Where the kernel has no such function, from the kernel. Each line of the
 * file in argv[1] is one draw: whether the vDSO did it, whether it had a state before, and the bytes. One at the start, and
 * one for each SIGUSR1.
 */
#define _GNU_SOURCE
#include <elf.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/random.h>

struct parameters {
	unsigned int state_size, protection, flags, reserved[13];
};

typedef ssize_t (*draw_function)(void *bytes, size_t count, unsigned int flags, void *state, size_t state_size);

static void *vdso_symbol(const char *name)
{
	const char *image = (const char *)getauxval(AT_SYSINFO_EHDR);
	const Elf64_Ehdr *header = (const void *)image;
	const Elf64_Shdr *sections = (const void *)(image + header->e_shoff);

	for (int i = 0; i < header->e_shnum; i++) {
		if (sections[i].sh_type != SHT_DYNSYM)
			continue;
		const Elf64_Sym *symbols = (const void *)(image + sections[i].sh_offset);
		const char *names = image + sections[sections[i].sh_link].sh_offset;
		for (size_t j = 0; j < sections[i].sh_size / sizeof(*symbols); j++)
			if (!strcmp(names + symbols[j].st_name, name))
				return (void *)(image + symbols[j].st_value);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	struct parameters parameters = { 0 };
	unsigned char bytes[32], *state = NULL;
	sigset_t asked;
	int number;
	FILE *out = argc == 2 ? fopen(argv[1], "w") : NULL;
	draw_function draw = vdso_symbol("__vdso_getrandom");

	if (!draw)
		draw = vdso_symbol("__kernel_getrandom");
	if (!out || (draw && draw(NULL, 0, 0, &parameters, ~0UL)))
		return 1;
	if (draw) {
		state = mmap(NULL, 4096, parameters.protection, parameters.flags, -1, 0);
		if (state == MAP_FAILED)
			return 1;
	}
	sigemptyset(&asked);
	sigaddset(&asked, SIGUSR1);
	sigprocmask(SIG_BLOCK, &asked, NULL);
	do {
		int is_warm = 0;

		for (unsigned int i = 0; i < parameters.state_size; i++)
			is_warm |= state[i];
		if ((draw ? draw(bytes, sizeof(bytes), 0, state, parameters.state_size) :
			    getrandom(bytes, sizeof(bytes), 0)) != sizeof(bytes))
			return 1;
		fprintf(out, "%s %s ", draw ? "vdso" : "kernel", is_warm ? "warm" : "empty");
		for (unsigned int i = 0; i < sizeof(bytes); i++)
			fprintf(out, "%02x", bytes[i]);
		fprintf(out, "\n");
		fflush(out);
	} while (!sigwait(&asked, &number));
	return 1;
}

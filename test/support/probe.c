/* A program for images without a shell: says what it was started with, counts, and serves. */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int serve(int port)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(port) };
	int listener = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
	if (bind(listener, (void *)&address, sizeof address) || listen(listener, 8))
		return 1;
	puts("serving");
	fflush(stdout);
	for (;;) {
		int client = accept(listener, 0, 0);
		if (client >= 0 && write(client, "hello\n", 6) == 6)
			close(client);
	}
}

int main(int argc, char **argv)
{
	char folder[4096];
	const char *greeting = getenv("GREETING");
	if (argc > 2 && !strcmp(argv[1], "serve"))
		return serve(atoi(argv[2]));
	if (argc > 1 && !strcmp(argv[1], "count"))
		for (int number = 0;; number++) {
			printf("%d\n", number);
			fflush(stdout);
			usleep(10000);
		}
	printf("%d:%d %d %s %s\n", getuid(), getgid(), geteuid(), getcwd(folder, sizeof folder), greeting ? greeting : "-");
	return 0;
}

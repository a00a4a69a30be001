/* The least that a server of short connections does: accept, read, write, close, one connection after
 * the other, without events. What it costs is the kernel's share, which no engine can save but by
 * other calls.
 *
 *     cc -O2 -o accept_loop accept_loop.c && ./accept_loop PORT
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	static char answer[2048], question[4096];
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(argc > 1 ? atoi(argv[1]) : 0) };
	int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
	int head = sprintf(answer, "HTTP/1.1 200 OK\r\nContent-Length: 1024\r\nConnection: close\r\n\r\n");

	memset(answer + head, 'x', 1024);
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (bind(listener, (void *)&at, sizeof at) || listen(listener, 4096))
		return perror("listen"), 1;
	for (;;) {
		int connection = accept(listener, NULL, NULL);

		if (connection < 0)
			continue;
		if (read(connection, question, sizeof question) > 0)
			(void)!write(connection, answer, head + 1024);
		close(connection);
	}
}

/*
 * The sender that mpps is measured against: sendmmsg(2) with the 2015 article's parameters and
 * nothing else. One pinned thread, one connected socket with a fixed source port, 1024 messages of
 * 32 bytes.
 *
 *     sendmmsg ADDRESS PORT CPU SECONDS
 *
 * Prints {"sent":N,"active_seconds":S}.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#define BATCH 1024
#define BYTES 32

static double now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
	static char payload[BYTES];
	static struct iovec vectors[BATCH];
	static struct mmsghdr messages[BATCH];
	struct sockaddr_in from = { .sin_family = AF_INET, .sin_port = htons(4320) };
	struct sockaddr_in to = { .sin_family = AF_INET };
	int buffer = 32 << 20;
	unsigned long sent = 0;
	cpu_set_t cpus;

	if (argc != 5)
		return 2;
	to.sin_port = htons(atoi(argv[2]));
	inet_pton(AF_INET, argv[1], &to.sin_addr);
	CPU_ZERO(&cpus);
	CPU_SET(atoi(argv[3]), &cpus);
	sched_setaffinity(0, sizeof(cpus), &cpus);

	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &buffer, sizeof(buffer));
	if (bind(fd, (struct sockaddr *)&from, sizeof(from)) != 0 ||
	    connect(fd, (struct sockaddr *)&to, sizeof(to)) != 0) {
		perror("sendmmsg");
		return 2;
	}
	for (int i = 0; i < BATCH; i++) {
		vectors[i].iov_base = payload;
		vectors[i].iov_len = BYTES;
		messages[i].msg_hdr.msg_iov = &vectors[i];
		messages[i].msg_hdr.msg_iovlen = 1;
	}
	double begin = now(), end = begin + atof(argv[4]), last = begin;
	while (last < end) {
		int count = sendmmsg(fd, messages, BATCH, 0);
		if (count > 0)
			sent += count;
		last = now();
	}
	printf("{\"sent\":%lu,\"active_seconds\":%f}\n", sent, last - begin);
	return 0;
}

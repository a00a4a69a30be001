/* The least that a generator inside the kernel can be, as xdp-trafficgen's is: one frame, a
 * program that redirects it, run again and again (BPF_PROG_TEST_RUN with live frames).
 *
 *     cc -O2 -o live_frames live_frames.c -lbpf
 *     live_frames INTERFACE TARGET_MAC SOURCE_MAC CPU SECONDS [FRAME_BYTES [BURST PAUSE_US]]
 *
 * With BURST it sends so many frames, waits for PAUSE_US, and so on. Writes one JSON object: frames
 * that the program was run for, and for how long. */
#define _GNU_SOURCE
#include <bpf/bpf.h>
#include <linux/bpf.h>
#include <net/if.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CALL_FRAMES (1 << 18)
/* Frames between two flushes of the redirection: as many as the kernel takes. xdp-trafficgen
 * leaves it at the kernel's 64. */
#define BATCH_FRAMES 256
#define FRAME_BYTES_MIN 74
#define FRAME_BYTES_MAX 1514

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static void mac(uint8_t *to, const char *text) {
    unsigned byte[6];
    if (sscanf(text, "%x:%x:%x:%x:%x:%x", byte, byte + 1, byte + 2, byte + 3, byte + 4, byte + 5) != 6)
        exit(2);
    for (int i = 0; i < 6; i++)
        to[i] = byte[i];
}

int main(int argc, char **argv) {
    unsigned frame_bytes = argc > 6 ? atoi(argv[6]) : FRAME_BYTES_MIN;
    unsigned call_frames = argc > 8 ? atoi(argv[7]) : CALL_FRAMES;
    double pause = argc > 8 ? atof(argv[8]) / 1e6 : 0;
    if (argc < 6 || frame_bytes < FRAME_BYTES_MIN || frame_bytes > FRAME_BYTES_MAX || !call_frames)
        return fprintf(stderr, "usage: live_frames INTERFACE TARGET_MAC SOURCE_MAC CPU SECONDS "
                               "[FRAME_BYTES [BURST PAUSE_US]]\n"), 2;
    unsigned interface = if_nametoindex(argv[1]);
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    CPU_SET(atoi(argv[4]), &cpus);
    if (!interface || sched_setaffinity(0, sizeof cpus, &cpus))
        return perror(argv[1]), 2;

    /* r0 = bpf_redirect(interface, 0); return r0 */
    struct bpf_insn program[] = {
        {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_1, .imm = (int)interface},
        {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_2, .imm = 0},
        {.code = BPF_JMP | BPF_CALL, .imm = BPF_FUNC_redirect},
        {.code = BPF_JMP | BPF_EXIT},
    };
    int fd = bpf_prog_load(BPF_PROG_TYPE_XDP, "live_frames", "GPL", program,
                           sizeof program / sizeof *program, NULL);
    if (fd < 0)
        return perror("bpf_prog_load"), 2;

    /* Ethernet, IPv4 and UDP headers; who receives drops before it looks. */
    uint8_t frame[FRAME_BYTES_MAX] = {0};
    mac(frame, argv[2]);
    mac(frame + 6, argv[3]);
    frame[12] = 8;
    frame[14] = 0x45;
    frame[16] = (frame_bytes - 14) >> 8;
    frame[17] = (frame_bytes - 14) & 255;
    frame[22] = 64;
    frame[23] = 17;
    struct xdp_md context = {.data_end = frame_bytes};
    LIBBPF_OPTS(bpf_test_run_opts, options, .data_in = frame, .data_size_in = frame_bytes,
                .ctx_in = &context, .ctx_size_in = sizeof context, .repeat = call_frames, .batch_size = BATCH_FRAMES,
                .flags = BPF_F_TEST_XDP_LIVE_FRAMES);
    double start = now(), end = start + atof(argv[5]);
    unsigned long sent = 0;
    while (now() < end) {
        int result = bpf_prog_test_run_opts(fd, &options);
        if (result)
            return fprintf(stderr, "bpf_prog_test_run: %s\n", strerror(-result)), 2;
        sent += call_frames;
        /* It does not sleep: a timer would make the silence longer, and differently each time. */
        for (double over = now() + pause; pause && now() < over;)
            ;
    }
    printf("{\"sent\": %lu, \"active_seconds\": %.6f}\n", sent, now() - start);
    return 0;
}

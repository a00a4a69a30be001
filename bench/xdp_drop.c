/* The least that can be done with a frame: an XDP program that drops all of an interface's.
 *
 *     cc -O2 -o xdp_drop xdp_drop.c -lbpf
 *     xdp_drop INTERFACE
 *
 * It ends with a signal, and the program with it. */
#include <bpf/bpf.h>
#include <linux/bpf.h>
#include <linux/if_link.h>
#include <net/if.h>
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv) {
    struct bpf_insn program[] = {
        {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0, .imm = XDP_DROP},
        {.code = BPF_JMP | BPF_EXIT},
    };
    LIBBPF_OPTS(bpf_link_create_opts, options, .flags = XDP_FLAGS_DRV_MODE);
    int fd = bpf_prog_load(BPF_PROG_TYPE_XDP, "xdp_drop", "GPL", program, 2, NULL);
    if (argc != 2 || fd < 0 || bpf_link_create(fd, if_nametoindex(argv[1]), BPF_XDP, &options) < 0)
        return perror("xdp_drop"), 2;
    return pause();
}

// Hands every frame of a queue to its AF_XDP socket, and to the kernel where there is none.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__type(key, __u32);
	__type(value, __u32);
	__uint(max_entries, 64);
} SOCKETS SEC(".maps");

SEC("xdp")
int redirect(struct xdp_md *packet)
{
	return bpf_redirect_map(&SOCKETS, packet->rx_queue_index, XDP_PASS);
}

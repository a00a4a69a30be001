"""Medians and ratios of what run.py measured."""
import statistics

# Which peer each way of mpps-io is held against, within a round.
AGAINST = {
    "mpps-io recv": ["tokio"],
    "mpps-io recvmmsg": ["tokio"],
    "mpps-io recvmmsg, block": ["tokio"],
    "mpps-io io_uring": ["tokio"],
    "mpps-io af_xdp": ["xsk-rs", "xdp"],
    "mpps-io af_xdp, block": ["xsk-rs", "xdp"],
}
# Column, key of a run, digits, what a figure is divided by.
COLUMNS = {
    "drop": [("Mpps", "pps", 2, 1e6), ("CPU ns", "cpu_ns", 0, 1)],
    "drop, one CPU": [("Mpps", "pps", 2, 1e6), ("CPU ns", "cpu_ns", 0, 1),
                      ("CPU ns with queue", "cpu_with_queue_ns", 0, 1)],
    "echo": [("Mpps", "pps", 3, 1e6), ("CPU ns", "cpu_ns", 0, 1)],
    "round trip": [("p50 us", "p50_us", 1, 1), ("p99 us", "p99_us", 1, 1), ("CPU ns", "cpu_ns", 0, 1)],
}


def spread(values, digits):
    """The median, and the extremes behind it."""
    values = list(values)
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f}-{max(values):.{digits}f})"


def summary(raw):
    lines = [f"Linux {raw['kernel']}, {raw['cpu']}, {raw['started']}",
             "medians (lowest-highest), ratios within a round"]
    for condition, rounds in raw["conditions"].items():
        lines += ["", condition]
        for peer in rounds[0] if rounds else []:
            parts = []
            for column, key, digits, unit in COLUMNS[condition]:
                figures = spread((one[peer][key] / unit for one in rounds), digits)
                ratios = [f"{spread((one[peer][key] / one[other][key] for one in rounds), 2)} of {other}"
                          for other in AGAINST.get(peer, [])]
                parts.append(", ".join([f"{column} {figures}", *ratios]))
            if condition == "round trip":
                lost = sum(one[peer]["sent"] - one[peer]["echoed"] for one in rounds)
                parts.append(f"{lost} lost")
            lines.append(f"  {peer}: " + "; ".join(parts))
    lines += ["", "lines of code, and unsafe blocks in them"]
    lines += [f"  {peer}: {code['lines']}, {code['unsafe_blocks']}" for peer, code in raw["code"].items()]
    return "\n".join(lines) + "\n"

/* af_xdp INTERFACE CORE ROLE LEN COUNT WAIT: measures AF_XDP on a veth, in native mode.
 * ROLE ask: COUNT round trips with `echo`; prints the mean in microseconds.
 * ROLE source: sends COUNT frames; ROLE sink: prints the received Gbit/s.
 * WAIT spin: polls; sleep: sleeps until a frame arrives.
 * A UMEM chunk is at most a page: a longer frame takes several chunks. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/bpf.h>
#include <linux/if_link.h>
#include <linux/if_xdp.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Missing in older kernel headers. */
#ifndef XDP_USE_SG
#define XDP_USE_SG (1 << 4)
#endif
#ifndef XDP_PKT_CONTD
#define XDP_PKT_CONTD (1 << 0)
#endif
#ifndef BPF_F_XDP_HAS_FRAGS
#define BPF_F_XDP_HAS_FRAGS (1U << 5)
#endif

enum { CHUNK = 4096, PIECE = 3840, SLOTS = 2048, BURST = 64, SPARE = 256, QUIET_US = 200000 };

struct ring {
    uint32_t *produced, *consumed, mine;
    void *entries;
};

static char *memory;
static int xsk, spins;
static struct ring received, sent, fill, done;
static uint32_t next_chunk;

static void must(int ok, const char *what) {
    if (!ok) {
        perror(what);
        exit(1);
    }
}

static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

static int bpf(int command, union bpf_attr *attr) {
    return (int)syscall(SYS_bpf, command, attr, sizeof *attr);
}

/* XDP program: redirects all frames of queue 0 to the socket in the map. */
static int steer(int interface) {
    union bpf_attr map = {.map_type = BPF_MAP_TYPE_XSKMAP, .key_size = 4, .value_size = 4, .max_entries = 1};
    int sockets = bpf(BPF_MAP_CREATE, &map);
    must(sockets >= 0, "map");
    struct bpf_insn steps[] = {
        {.code = BPF_LDX | BPF_MEM | BPF_W, .dst_reg = 2, .src_reg = 1, .off = offsetof(struct xdp_md, rx_queue_index)},
        {.code = BPF_LD | BPF_IMM | BPF_DW, .dst_reg = 1, .src_reg = BPF_PSEUDO_MAP_FD, .imm = sockets},
        {0},
        {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 3, .imm = XDP_PASS},
        {.code = BPF_JMP | BPF_CALL, .imm = BPF_FUNC_redirect_map},
        {.code = BPF_JMP | BPF_EXIT},
    };
    union bpf_attr program = {.prog_type = BPF_PROG_TYPE_XDP};
    program.insns = (uintptr_t)steps;
    program.insn_cnt = sizeof steps / sizeof *steps;
    program.license = (uintptr_t)"Dual MIT/GPL";
    program.prog_flags = BPF_F_XDP_HAS_FRAGS;
    int loaded = bpf(BPF_PROG_LOAD, &program);
    must(loaded >= 0, "program");
    union bpf_attr link = {0};
    link.link_create.prog_fd = loaded;
    link.link_create.target_ifindex = interface;
    link.link_create.attach_type = BPF_XDP;
    link.link_create.flags = XDP_FLAGS_DRV_MODE;
    must(bpf(BPF_LINK_CREATE, &link) >= 0, "attach");
    return sockets;
}

static void map_ring(struct ring *ring, const struct xdp_ring_offset *at, off_t page, size_t entry) {
    char *start = mmap(0, at->desc + SLOTS * entry, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, xsk, page);
    must(start != MAP_FAILED, "ring");
    ring->produced = (uint32_t *)(start + at->producer);
    ring->consumed = (uint32_t *)(start + at->consumer);
    ring->entries = start + at->desc;
}

static void open_socket(int interface, int longer) {
    xsk = socket(AF_XDP, SOCK_RAW, 0);
    must(xsk >= 0, "AF_XDP");
    size_t bytes = 2UL * SLOTS * CHUNK;
    memory = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    must(memory != MAP_FAILED, "memory");
    struct xdp_umem_reg region = {.addr = (uintptr_t)memory, .len = bytes, .chunk_size = CHUNK};
    must(setsockopt(xsk, SOL_XDP, XDP_UMEM_REG, &region, sizeof region) == 0, "region");
    const int rings[] = {XDP_UMEM_FILL_RING, XDP_UMEM_COMPLETION_RING, XDP_RX_RING, XDP_TX_RING};
    int slots = SLOTS;
    for (int i = 0; i < 4; i++) must(setsockopt(xsk, SOL_XDP, rings[i], &slots, sizeof slots) == 0, "slots");
    struct xdp_mmap_offsets at;
    socklen_t len = sizeof at;
    must(getsockopt(xsk, SOL_XDP, XDP_MMAP_OFFSETS, &at, &len) == 0, "offsets");
    map_ring(&received, &at.rx, XDP_PGOFF_RX_RING, sizeof(struct xdp_desc));
    map_ring(&sent, &at.tx, XDP_PGOFF_TX_RING, sizeof(struct xdp_desc));
    map_ring(&fill, &at.fr, XDP_UMEM_PGOFF_FILL_RING, sizeof(uint64_t));
    map_ring(&done, &at.cr, XDP_UMEM_PGOFF_COMPLETION_RING, sizeof(uint64_t));
    for (; fill.mine < SLOTS; fill.mine++) ((uint64_t *)fill.entries)[fill.mine] = (uint64_t)fill.mine * CHUNK;
    __atomic_store_n(fill.produced, fill.mine, __ATOMIC_RELEASE);
    struct sockaddr_xdp to = {.sxdp_family = AF_XDP, .sxdp_ifindex = interface};
    to.sxdp_flags = XDP_COPY | (longer ? XDP_USE_SG : 0);
    must(bind(xsk, (struct sockaddr *)&to, sizeof to) == 0, "bind");
}

/* Adds a frame to the transmit ring, in as many chunks as it needs. */
static void put(int left) {
    static const unsigned char head[14] = {[0 ... 5] = 0xff, [6] = 2, [12] = 0x88, [13] = 0xb5};
    for (int first = 1; left > 0; first = 0) {
        struct xdp_desc *entry = (struct xdp_desc *)sent.entries + (sent.mine++ & (SLOTS - 1));
        entry->addr = (uint64_t)(SLOTS + (next_chunk++ & (SLOTS - 1))) * CHUNK;
        entry->len = left < PIECE ? left : PIECE;
        left -= entry->len;
        entry->options = left > 0 ? XDP_PKT_CONTD : 0;
        if (first) memcpy(memory + entry->addr, head, sizeof head);
    }
}

/* Wakes the kernel to send the transmit ring. */
static void kick(void) {
    __atomic_store_n(sent.produced, sent.mine, __ATOMIC_RELEASE);
    int again;
    do {
        again = sendto(xsk, 0, 0, MSG_DONTWAIT, 0, 0) < 0 && (errno == EAGAIN || errno == EBUSY || errno == ENOBUFS);
        __atomic_store_n(done.consumed, __atomic_load_n(done.produced, __ATOMIC_ACQUIRE), __ATOMIC_RELEASE);
    } while (again && __atomic_load_n(sent.consumed, __ATOMIC_ACQUIRE) != sent.mine);
}

/* Takes received frames and returns their number. */
static long take(void) {
    long frames = 0;
    uint32_t end = __atomic_load_n(received.produced, __ATOMIC_ACQUIRE);
    for (; received.mine != end; received.mine++) {
        struct xdp_desc *entry = (struct xdp_desc *)received.entries + (received.mine & (SLOTS - 1));
        ((uint64_t *)fill.entries)[fill.mine++ & (SLOTS - 1)] = entry->addr & ~(uint64_t)(CHUNK - 1);
        frames += !(entry->options & XDP_PKT_CONTD);
    }
    __atomic_store_n(received.consumed, received.mine, __ATOMIC_RELEASE);
    __atomic_store_n(fill.produced, fill.mine, __ATOMIC_RELEASE);
    return frames;
}

static void wait_for_one(void) {
    while (take() == 0) {
        struct pollfd ready = {.fd = xsk, .events = POLLIN};
        if (!spins) poll(&ready, 1, -1);
    }
}

static void ask(int len, long count) {
    double since = 0;
    for (long i = 0; i <= count; i++) {
        if (i == 1) since = now_us();
        put(len);
        kick();
        wait_for_one();
    }
    printf("%f\n", (now_us() - since) / (double)count);
}

static void echo(int len, long count) {
    for (long i = 0; i <= count; i++) {
        wait_for_one();
        put(len);
        kick();
    }
}

static void source(int len, long count) {
    for (long i = 0; i < count;) {
        uint32_t waiting = sent.mine - __atomic_load_n(done.produced, __ATOMIC_ACQUIRE);
        for (int b = 0; b < BURST && waiting < SLOTS - SPARE && i < count; b++, i++) put(len);
        kick();
    }
}

static void sink(int len) {
    wait_for_one();
    double since = now_us(), last = since;
    long came = 0;
    while (now_us() - last < QUIET_US) {
        long more = take();
        if (more > 0) last = now_us();
        came += more;
    }
    printf("%f\n", (double)came * len * 8 / (last - since) / 1e3);
}

int main(int argc, char **argv) {
    must(argc == 7, "usage: af_xdp INTERFACE CORE ask|echo|source|sink LEN COUNT spin|sleep");
    int interface = (int)if_nametoindex(argv[1]), len = atoi(argv[4]);
    long count = atol(argv[5]);
    const char *role = argv[3];
    spins = strcmp(argv[6], "spin") == 0;
    cpu_set_t cores;
    CPU_ZERO(&cores);
    CPU_SET(atoi(argv[2]), &cores);
    must(sched_setaffinity(0, sizeof cores, &cores) == 0, "core");
    int sockets = steer(interface);
    open_socket(interface, len > PIECE);
    uint32_t queue = 0, socket_ = (uint32_t)xsk;
    union bpf_attr entry = {.map_fd = (uint32_t)sockets};
    entry.key = (uintptr_t)&queue;
    entry.value = (uintptr_t)&socket_;
    must(bpf(BPF_MAP_UPDATE_ELEM, &entry) == 0, "entry");
    puts("ready");
    fflush(stdout);
    if (strcmp(role, "ask") == 0 || strcmp(role, "source") == 0) getchar();
    if (strcmp(role, "ask") == 0) ask(len, count);
    else if (strcmp(role, "echo") == 0) echo(len, count);
    else if (strcmp(role, "source") == 0) source(len, count);
    else sink(len);
    fflush(stdout);
    /* The kernel may still be sending the last frames. */
    usleep(QUIET_US);
    return 0;
}

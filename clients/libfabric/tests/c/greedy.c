/* An endpoint sends and writes without a pause to another that reads no completions: the sender
 * is throttled, and no message is lost. */
#include "pair.h"

#define KEY 7
/* Completions at which peers must wait, and the operations that may be in flight besides. */
#define WAITING (1 << 16)
#define MOST (6 * WAITING)

static unsigned char memory[1 << 20];
static struct fid_cq *sent_cq;
static struct fid_ep *ep;
static struct fid_cq *received_cq;
static struct fid_cntr *writes;
static fi_addr_t addr;

/* The endpoint that reads nothing has a queue for each direction. */
static void open_deaf(void) {
    struct fi_cq_attr attr = {.format = FI_CQ_FORMAT_TAGGED};
    struct fi_cntr_attr counts = {.events = FI_CNTR_EVENTS_COMP};
    char name[NAME_BYTES];
    size_t len = sizeof name;
    CHECK(fi_endpoint(domain, info, &ep, NULL) == 0);
    CHECK(fi_cq_open(domain, &attr, &sent_cq, NULL) == 0);
    CHECK(fi_cq_open(domain, &attr, &received_cq, NULL) == 0);
    CHECK(fi_cntr_open(domain, &counts, &writes, NULL) == 0);
    CHECK(fi_ep_bind(ep, &av->fid, 0) == 0);
    CHECK(fi_ep_bind(ep, &sent_cq->fid, FI_TRANSMIT) == 0);
    CHECK(fi_ep_bind(ep, &received_cq->fid, FI_RECV) == 0);
    CHECK(fi_ep_bind(ep, &writes->fid, FI_REMOTE_WRITE) == 0);
    CHECK(fi_enable(ep) == 0);
    CHECK(fi_getname(&ep->fid, name, &len) == 0);
    CHECK(fi_av_insert(av, name, 1, &addr, 0, NULL) == 1);
}

static void close_deaf(void) {
    CHECK(fi_close(&ep->fid) == 0);
    CHECK(fi_close(&sent_cq->fid) == 0 && fi_close(&received_cq->fid) == 0);
    CHECK(fi_close(&writes->fid) == 0);
}

/* It makes progress by the queue that stays empty; the other endpoint reads its own. */
static void both_go_on(void) {
    entry told[64];
    CHECK(fi_cq_read(sent_cq, told, 1) == -FI_EAGAIN);
    ssize_t count = fi_cq_read(a.cq, told, 64);
    CHECK(count >= 0 || count == -FI_EAGAIN);
}

/* Returns how many operations can be started until none makes progress any more. */
static uint64_t until_held(ssize_t (*begin)(uint64_t)) {
    uint64_t begun = 0;
    for (int idle = 0; idle < 2000;) {
        ssize_t got = begin(begun);
        CHECK(got == 0 || got == -FI_EAGAIN);
        begun += got == 0;
        idle = got == 0 ? 0 : idle + 1;
        CHECK(begun < MOST);
        both_go_on();
    }
    return begun;
}

/* All operations are reported once and in order; the last ones while no others are started. */
static void all_told(uint64_t begun, uint64_t flag, bool numbered) {
    double since = now();
    for (uint64_t told = 0; told < begun;) {
        entry one;
        ssize_t count = fi_cq_read(received_cq, &one, 1);
        CHECK(now() - since < 60);
        if (count == -FI_EAGAIN) {
            both_go_on();
            continue;
        }
        CHECK(count == 1);
        if (!(one.flags & flag))
            continue;
        CHECK(!numbered || one.data == told);
        told++;
    }
}

static ssize_t write_one(uint64_t data) {
    return fi_inject_writedata(a.ep, memory, 8, data, addr, 64, KEY);
}

static ssize_t send_one(uint64_t data) {
    return fi_injectdata(a.ep, memory, 0, data, addr);
}

/* A peer with many indices in the address vector is no more loaded than a peer with a single
 * index. */
static void one_of_many_names(void) {
    enum { NAMES = 20, OF_ONE = 256 };
    char name[NAME_BYTES];
    size_t len = sizeof name, begun = 0;
    fi_addr_t all[NAMES];
    CHECK(fi_getname(&ep->fid, name, &len) == 0);
    for (int at = 0; at < NAMES; at++) {
        CHECK(fi_av_insert(av, name, 1, &all[at], 0, NULL) == 1);
        /* The connect ends. */
        while (fi_write(a.ep, memory, 8, NULL, all[at], 0, KEY, NULL) != 0)
            both_go_on();
        entry told;
        while (fi_cq_read(a.cq, &told, 1) != 1)
            CHECK(fi_cq_read(sent_cq, &told, 1) == -FI_EAGAIN);
    }
    for (int at = 0, full = 0; full < NAMES; at = (at + 1) % NAMES) {
        ssize_t got = fi_write(a.ep, memory, 8, NULL, all[at], 0, KEY, NULL);
        CHECK(got == 0 || got == -FI_EAGAIN);
        begun += got == 0;
        full = got == 0 ? 0 : full + 1;
    }
    CHECK(begun > 0 && begun <= OF_ONE);
    for (double since = now(); begun > 0;) {
        entry told;
        begun -= fi_cq_read(a.cq, &told, 1) == 1;
        CHECK(fi_cq_read(sent_cq, &told, 1) == -FI_EAGAIN && now() - since < 20);
    }
}

int main(void) {
    struct fid_mr *mr;
    CHECK(setenv("FI_CAUSEWAY_UNEXPECTED_MIB", "16", 1) == 0);
    open_domain(0, FI_PROGRESS_MANUAL);
    open_end(&a, FI_WAIT_NONE, 0);
    open_deaf();
    CHECK(fi_mr_reg(domain, memory, 4096, FI_REMOTE_WRITE, 0, KEY, 0, &mr, NULL) == 0);
    one_of_many_names();
    uint64_t counted = fi_cntr_read(writes), begun = until_held(write_one);
    CHECK(begun >= WAITING && begun < 2 * WAITING);
    CHECK(fi_cntr_read(writes) < counted + begun);
    all_told(begun, FI_REMOTE_WRITE, true);
    CHECK(fi_cntr_read(writes) == counted + begun);
    /* Messages without bytes never fill a multi-receive buffer. */
    struct iovec iov = {memory, sizeof memory};
    struct fi_msg many = {&iov, NULL, 1, FI_ADDR_UNSPEC, &words[1], 0};
    CHECK(fi_recvmsg(ep, &many, FI_MULTI_RECV | FI_COMPLETION) == 0);
    begun = until_held(send_one);
    CHECK(begun >= WAITING);
    all_told(begun, FI_RECV, true);
    /* The buffer can be cancelled, also while it is paused. */
    begun = until_held(send_one);
    CHECK(fi_cancel(&ep->fid, &words[1]) == 0);
    CHECK(fi_cancel(&ep->fid, &words[1]) == -FI_ENOENT);
    CHECK(fi_close(&mr->fid) == 0);
    close_deaf();
    close_end(&a);
    close_domain();
    puts("ok");
    return 0;
}

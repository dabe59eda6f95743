/* Two reliable queue pairs of one adapter, connected with each other: tests of operations that no
 * program of the distribution has. Prints "passed"; a failed check ends the program with status 1.
 *   usage: loopback GID-INDEX registrations | resize | windows */
#define _GNU_SOURCE
#include <errno.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LONG = 1 << 20, SHORT = 64 << 10, RENEWALS = 200 };
enum { MESSAGES = 20000, DEPTH = 32, MESSAGES_PER_RESIZE = 250, SENT_AHEAD_FOR_RESIZE = DEPTH };
enum { RIGHTS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ };

/* A queue pair and the completion queues of its sends and receives. */
struct side {
    struct ibv_cq *sent, *received;
    struct ibv_qp *qp;
};

static struct ibv_context *device;
static struct ibv_pd *domain;
static struct ibv_comp_channel *events;
static union ibv_gid gid;
static int gid_index;
static struct side from, to;

static void check(int holds, const char *what)
{
    if (holds)
        return;
    printf("failed: %s\n", what);
    exit(1);
}

static void create(struct side *side)
{
    struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC, .sq_sig_all = 1};
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = RIGHTS};

    side->sent = ibv_create_cq(device, 2 * DEPTH, NULL, NULL, 0);
    side->received = ibv_create_cq(device, 2 * DEPTH, NULL, events, 0);
    check(side->sent && side->received, "create completion queues");
    init.send_cq = side->sent;
    init.recv_cq = side->received;
    init.cap.max_send_wr = init.cap.max_recv_wr = DEPTH;
    init.cap.max_send_sge = init.cap.max_recv_sge = 1;
    side->qp = ibv_create_qp(domain, &init);
    check(side->qp != NULL, "create a queue pair");
    check(!ibv_modify_qp(side->qp, &attr,
                         IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
          "initialise a queue pair");
}

static void connect_to(struct side *side, const struct side *peer)
{
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer->qp->qp_num,
        .max_dest_rd_atomic = 1, .min_rnr_timer = 12,
        .ah_attr = {.is_global = 1, .port_num = 1,
                    .grh = {.dgid = gid, .sgid_index = gid_index, .hop_limit = 1}}};

    check(!ibv_modify_qp(side->qp, &attr,
                         IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                             IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
          "make a queue pair ready to receive");
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = 14;
    attr.retry_cnt = attr.rnr_retry = 7;
    attr.max_rd_atomic = 1;
    check(!ibv_modify_qp(side->qp, &attr,
                         IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                             IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC),
          "make a queue pair ready to send");
}

static void open_device(const char *index)
{
    struct ibv_device **list = ibv_get_device_list(NULL);

    check(list && list[0], "find a device");
    device = ibv_open_device(list[0]);
    check(device != NULL, "open the device");
    gid_index = atoi(index);
    check(!ibv_query_gid(device, 1, gid_index, &gid), "read the GID");
    domain = ibv_alloc_pd(device);
    events = ibv_create_comp_channel(device);
    check(domain && events, "create a protection domain and an event channel");
    create(&from);
    create(&to);
    connect_to(&from, &to);
    connect_to(&to, &from);
}

static char *map(char *at, size_t length)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | (at ? MAP_FIXED : 0);
    char *area = mmap(at, length, PROT_READ | PROT_WRITE, flags, -1, 0);

    check(area != MAP_FAILED, "map memory");
    return area;
}

static struct ibv_mr *enroll(char *area, size_t length)
{
    struct ibv_mr *mr = ibv_reg_mr(domain, area, length, RIGHTS);

    check(mr != NULL, "register memory");
    return mr;
}

/* Fills the source with `value`, writes it to `area` by a key, and returns the status. */
static enum ibv_wc_status write_by(struct ibv_mr *source, char *area, uint32_t key, size_t length, int value)
{
    struct ibv_sge sge = {(uintptr_t)source->addr, length, source->lkey};
    struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
                             .wr.rdma = {(uintptr_t)area, key}}, *bad;
    struct ibv_wc wc;

    memset(source->addr, value, length);
    check(!ibv_post_send(from.qp, &wr, &bad), "post a write");
    while (ibv_poll_cq(from.sent, 1, &wc) == 0)
        sched_yield();
    return wc.status;
}

static int is_filled(const char *area, size_t length, int value)
{
    for (size_t i = 0; i < length; i++)
        if (area[i] != (char)value)
            return 0;
    return 1;
}

/* Registers `area`, writes to it, lets `replace` give it other pages, and writes again: by the old key
 * to the old pages, which the registration holds, and by a new key to the new pages. */
static void replaced(struct ibv_mr *source, char *area, void (*replace)(char *), const char *what)
{
    struct ibv_mr *mr = enroll(area, LONG);

    check(write_by(source, area, mr->rkey, LONG, 1) == IBV_WC_SUCCESS && is_filled(area, LONG, 1), what);
    replace(area);
    check(is_filled(area, LONG, 0), what);
    check(write_by(source, area, mr->rkey, LONG, 2) == IBV_WC_SUCCESS, what);
    check(is_filled(area, LONG, 0), "a registration left its pages");
    check(!ibv_dereg_mr(mr), "end a registration");
    mr = enroll(area, LONG);
    check(write_by(source, area, mr->rkey, LONG, 3) == IBV_WC_SUCCESS, what);
    check(is_filled(area, LONG, 3), "a new registration has old pages");
    check(!ibv_dereg_mr(mr), "end a registration");
}

static void by_mapping(char *area)
{
    check(!munmap(area, LONG), "unmap memory");
    map(area, LONG);
}

static void by_advice(char *area)
{
    check(!madvise(area, LONG, MADV_DONTNEED), "discard memory");
}

/* The parent keeps its pages when it writes to them while a child exists. */
static void forked(struct ibv_mr *source, char *area)
{
    struct ibv_mr *mr = enroll(area, LONG);
    pid_t child = fork();

    if (child == 0)
        for (;;)
            pause();
    check(child > 0, "fork");
    memset(area, 4, LONG);
    check(write_by(source, area, mr->rkey, LONG, 5) == IBV_WC_SUCCESS, "write after a fork");
    check(is_filled(area, LONG, 5), "a write after a fork went to other pages");
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    check(!ibv_dereg_mr(mr), "end a registration");
}

static void registrations(void)
{
    char *area = map(NULL, LONG), *sent = map(NULL, LONG);
    struct ibv_mr *source = enroll(sent, LONG), *mr;
    uint32_t key = 0;

    replaced(source, area, by_mapping, "write after new mappings");
    replaced(source, area, by_advice, "write after discarded pages");
    forked(source, area);
    /* Keys are used again, each time for other pages. */
    for (int i = 0; i < RENEWALS; i++) {
        by_mapping(area);
        mr = enroll(area, SHORT);
        key = mr->rkey;
        check(write_by(source, area, key, SHORT, i + 1) == IBV_WC_SUCCESS, "write by a renewed key");
        check(is_filled(area, SHORT, i + 1), "a renewed key has old pages");
        check(!ibv_dereg_mr(mr), "end a registration");
    }
    by_mapping(area);
    check(write_by(source, area, key, SHORT, 1) == IBV_WC_REM_ACCESS_ERR, "an ended key is refused");
    check(is_filled(area, SHORT, 0), "an ended key wrote");
}

static atomic_int taken;
static atomic_int posted;

/* Sends numbered messages, at most `DEPTH` ahead of the receiver. */
static void *send_all(void *unused)
{
    static int numbers[DEPTH];
    struct ibv_mr *mr = enroll((char *)numbers, sizeof(numbers));
    struct ibv_wc wc;
    int completed = 0;

    for (int i = 0; i < MESSAGES; i++) {
        int *number = &numbers[i % DEPTH];
        struct ibv_sge sge = {(uintptr_t)number, sizeof(*number), mr->lkey};
        struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;

        while (i - atomic_load(&taken) >= DEPTH || i - completed >= DEPTH) {
            int count = ibv_poll_cq(from.sent, 1, &wc);
            check(count >= 0 && (count == 0 || wc.status == IBV_WC_SUCCESS), "send");
            completed += count;
            sched_yield();
        }
        *number = i;
        check(!ibv_post_send(from.qp, &wr, &bad), "post a send");
        atomic_store(&posted, i + 1);
    }
    return unused;
}

static void receive(struct ibv_mr *mr, int *slot)
{
    struct ibv_sge sge = {(uintptr_t)slot, sizeof(*slot), mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = (uintptr_t)slot, .sg_list = &sge, .num_sge = 1}, *bad;

    check(!ibv_post_recv(to.qp, &wr, &bad), "post a receive");
}

/* Resizes the completion queue of the receiver under traffic: with completions that were not polled,
 * and while others arrive. Each message must arrive once and in order. */
static void resize(void)
{
    static const int sizes[] = {2 * DEPTH, 1000, 100, 4000, 65, 300};
    static int slots[DEPTH];
    struct ibv_mr *mr = enroll((char *)slots, sizeof(slots));
    struct ibv_cq *cq;
    struct ibv_wc wc;
    pthread_t sender;
    void *context;
    int resizes = 0;

    for (int i = 0; i < DEPTH; i++)
        receive(mr, &slots[i]);
    check(!pthread_create(&sender, NULL, send_all, NULL), "start a thread");
    for (int next = 0; next < MESSAGES;) {
        if (next == resizes * MESSAGES_PER_RESIZE) {
            /* Every second time, the queue is full of completions. */
            while (resizes % 2 && atomic_load(&posted) - next < SENT_AHEAD_FOR_RESIZE)
                sched_yield();
            check(!ibv_resize_cq(to.received, sizes[resizes % 6]), "resize the completion queue");
            resizes++;
        }
        int count = ibv_poll_cq(to.received, 1, &wc);
        check(count >= 0, "poll");
        if (count == 0) {
            sched_yield();
            continue;
        }
        check(wc.status == IBV_WC_SUCCESS, "receive");
        check(*(int *)(uintptr_t)wc.wr_id == next, "a message is missing, or out of order");
        receive(mr, (int *)(uintptr_t)wc.wr_id);
        atomic_store(&taken, ++next);
    }
    pthread_join(sender, NULL);
    /* An armed queue stays armed. */
    check(!ibv_req_notify_cq(to.received, 0), "arm");
    check(!ibv_resize_cq(to.received, 500), "resize an armed queue");
    struct ibv_sge sge = {(uintptr_t)slots, sizeof(*slots), mr->lkey};
    struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;
    while (ibv_poll_cq(from.sent, 1, &wc) > 0)
        ;
    check(!ibv_post_send(from.qp, &wr, &bad), "post a send");
    /* A queue that was never armed may have raised an event for its first completion. */
    do {
        check(!ibv_get_cq_event(events, &cq, &context) && cq == to.received, "event of a resized queue");
        ibv_ack_cq_events(cq, 1);
    } while (ibv_poll_cq(cq, 1, &wc) == 0);
    check(wc.status == IBV_WC_SUCCESS, "completion of the event");
    printf("%d resizes\n", resizes);
}

/* The adapter has no memory windows: each kind is refused as not supported, and other work goes on. */
static void windows(void)
{
    static const enum ibv_mw_type types[] = {IBV_MW_TYPE_1, IBV_MW_TYPE_2};
    char *area = map(NULL, SHORT), *sent = map(NULL, SHORT);
    struct ibv_mr *source = enroll(sent, SHORT), *mr = enroll(area, SHORT);

    for (int i = 0; i < 2; i++) {
        errno = 0;
        check(ibv_alloc_mw(domain, types[i]) == NULL, "a memory window was allocated");
        if (errno != EOPNOTSUPP)
            printf("errno %d: %s\n", errno, strerror(errno));
        check(errno == EOPNOTSUPP, "a memory window is not supported");
    }
    check(write_by(source, area, mr->rkey, SHORT, 1) == IBV_WC_SUCCESS, "write after refused windows");
    check(is_filled(area, SHORT, 1), "a write after refused windows");
}

int main(int count, char **words)
{
    check(count == 3, "usage: loopback GID-INDEX registrations | resize | windows");
    open_device(words[1]);
    if (!strcmp(words[2], "resize"))
        resize();
    else if (!strcmp(words[2], "windows"))
        windows();
    else
        registrations();
    printf("passed\n");
    return 0;
}

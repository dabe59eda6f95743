/* Two endpoints of a process, and helpers for all programs here. */
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

#define CHECK(what)                                                         \
    do {                                                                    \
        if (!(what)) {                                                      \
            printf("%s:%d: %s does not hold\n", __FILE__, __LINE__, #what); \
            exit(1);                                                        \
        }                                                                   \
    } while (0)

#define NAME_BYTES 24

typedef struct fi_cq_tagged_entry entry;
typedef struct fi_cq_err_entry fault;

/* An endpoint with its queue and its counter. */
struct end {
    struct fid_ep *ep;
    struct fid_cq *cq;
    struct fid_cntr *sent, *received;
    fi_addr_t addr;
    char name[NAME_BYTES];
};

static struct fi_info *info;
static struct fid_fabric *fabric;
static struct fid_domain *domain;
static struct fid_av *av;
static struct end a, b;
static int words[64];
static enum fi_threading threading;

static inline double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static inline void open_domain(int mr_mode, enum fi_progress progress) {
    struct fi_info *hints = fi_allocinfo();
    struct fi_av_attr attr = {.type = FI_AV_UNSPEC};
    CHECK(hints);
    hints->fabric_attr->prov_name = strdup("causeway");
    hints->ep_attr->type = FI_EP_RDM;
    hints->caps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_DIRECTED_RECV | FI_MULTI_RECV |
                  FI_SOURCE;
    hints->domain_attr->mr_mode = mr_mode;
    hints->domain_attr->data_progress = progress;
    hints->domain_attr->threading = threading;
    CHECK(fi_getinfo(FI_VERSION(1, mr_mode ? 4 : 17), NULL, NULL, 0, hints, &info) == 0);
    CHECK(fi_fabric(info->fabric_attr, &fabric, NULL) == 0);
    CHECK(fi_domain(fabric, info, &domain, NULL) == 0);
    CHECK(fi_av_open(domain, &attr, &av, NULL) == 0);
    fi_freeinfo(hints);
}

/* With `selective`, only flagged operations are reported. */
static inline void open_end(struct end *end, enum fi_wait_obj wait, uint64_t selective) {
    struct fi_cq_attr attr = {.format = FI_CQ_FORMAT_TAGGED, .wait_obj = wait};
    struct fi_cntr_attr counts = {.events = FI_CNTR_EVENTS_COMP, .wait_obj = FI_WAIT_UNSPEC};
    size_t len = sizeof end->name;
    CHECK(fi_endpoint(domain, info, &end->ep, NULL) == 0);
    CHECK(fi_cq_open(domain, &attr, &end->cq, NULL) == 0);
    CHECK(fi_cntr_open(domain, &counts, &end->sent, NULL) == 0);
    CHECK(fi_cntr_open(domain, &counts, &end->received, NULL) == 0);
    CHECK(fi_ep_bind(end->ep, &av->fid, 0) == 0);
    CHECK(fi_ep_bind(end->ep, &end->cq->fid, FI_TRANSMIT | FI_RECV | selective) == 0);
    CHECK(fi_ep_bind(end->ep, &end->sent->fid, FI_SEND) == 0);
    CHECK(fi_ep_bind(end->ep, &end->received->fid, FI_RECV) == 0);
    CHECK(fi_enable(end->ep) == 0);
    CHECK(fi_getname(&end->ep->fid, end->name, &len) == 0 && len == NAME_BYTES);
    CHECK(fi_av_insert(av, end->name, 1, &end->addr, 0, NULL) == 1);
}

static inline void close_end(struct end *end) {
    CHECK(fi_close(&end->cq->fid) == -FI_EBUSY);
    CHECK(fi_close(&end->ep->fid) == 0);
    CHECK(fi_close(&end->cq->fid) == 0);
    CHECK(fi_close(&end->sent->fid) == 0 && fi_close(&end->received->fid) == 0);
}

static inline void close_domain(void) {
    CHECK(fi_close(&domain->fid) == -FI_EBUSY);
    CHECK(fi_close(&av->fid) == 0);
    CHECK(fi_close(&domain->fid) == 0);
    CHECK(fi_close(&fabric->fid) == 0);
    fi_freeinfo(info);
}

/* Both endpoints make progress. */
static inline void go_on(void) {
    fi_cq_read(a.cq, NULL, 0);
    if (b.cq)
        fi_cq_read(b.cq, NULL, 0);
}

/* Returns the next completion of an endpoint, within a few seconds: 0 or the error. */
static inline int next(struct end *end, entry *told, fault *failed, fi_addr_t *from) {
    double since = now();
    for (;;) {
        go_on();
        ssize_t count = fi_cq_readfrom(end->cq, told, 1, from);
        if (count == 1)
            return 0;
        if (count == -FI_EAVAIL) {
            CHECK(fi_cq_readerr(end->cq, failed, 0) == 1);
            return failed->err;
        }
        CHECK(count == -FI_EAGAIN && now() - since < 15);
    }
}

/* Expects a success with this context. */
static inline entry well(struct end *end, const int *context) {
    entry told;
    fault failed = {0};
    int err = next(end, &told, &failed, NULL);
    if (err || told.op_context != context) {
        printf("error %d (%s), context %ld\n", err, fi_strerror(err),
               (long)((int *)(err ? failed.op_context : told.op_context) - words));
        exit(1);
    }
    return told;
}

/* Returns the error of the operation with this context. */
static inline fault badly(struct end *end, const int *context) {
    entry told;
    fault failed = {0};
    CHECK(next(end, &told, &failed, NULL) != 0);
    CHECK(failed.op_context == context);
    return failed;
}

/* Expects no completion. */
static inline void silent(struct end *end) {
    entry told;
    for (int i = 0; i < 200; i++)
        go_on();
    CHECK(fi_cq_read(end->cq, &told, 1) == -FI_EAGAIN);
}

static inline void fill(unsigned char *bytes, size_t len, int seed) {
    for (size_t at = 0; at < len; at++)
        bytes[at] = (unsigned char)(seed * 131 + at * 31 + at / 253);
}

static inline bool is(const unsigned char *bytes, size_t len, int seed) {
    for (size_t at = 0; at < len; at++)
        if (bytes[at] != (unsigned char)(seed * 131 + at * 31 + at / 253))
            return false;
    return true;
}

#define WELL(CALL)                            \
    do {                                      \
        ssize_t got_;                         \
        while ((got_ = (CALL)) == -FI_EAGAIN) \
            go_on();                          \
        CHECK(got_ == 0);                     \
    } while (0)

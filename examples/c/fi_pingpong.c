/* libfabric ping-pong between two processes, by the provider `causeway`.
 *
 *     fi_pingpong PORT               answers messages of one partner, then ends
 *     fi_pingpong PORT NAME [COUNT]  sends COUNT messages to that NIC's process at PORT
 *
 * The program is plain libfabric; only the name of the provider is Causeway's. CAUSEWAY_MX names
 * the socket of the NIC, FI_PROVIDER_PATH the folder of libcauseway-fi.so:
 *
 *     cc -O2 -o fi_pingpong fi_pingpong.c -lfabric
 *     CAUSEWAY_MX=/run/causeway/mx1.sock ./fi_pingpong 47 &
 *     CAUSEWAY_MX=/run/causeway/mx0.sock ./fi_pingpong 47 mx1
 *
 * COUNT is 1,000 by default, and a message has 64 bytes. The partner is looked up 100 times, every
 * 50 ms; waits for messages have no time limit. A failure is printed, with exit status 1.
 */
#define _GNU_SOURCE
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LEN = 64, ADDRESS_MAX = 64, TRIES = 100 };
enum { HELLO = 1, PING = 2, PONG = 3 };

static struct fi_info *info;
static struct fid_fabric *fabric;
static struct fid_domain *domain;
static struct fid_av *av;
static struct fid_cq *cq;
static struct fid_ep *ep;

/* Ends the process if a libfabric call failed; such calls return negative error numbers. */
static void check(const char *call, ssize_t code) {
    if (code >= 0) return;
    fprintf(stderr, "fi_pingpong: %s: %s\n", call, fi_strerror((int)-code));
    exit(1);
}

/* Finds the provider. Without `name` the endpoint is one of this host, with the service `port`;
 * with `name` the result has the address of the process that has the service there, which may
 * still be starting. */
static void find(const char *name, const char *port) {
    struct fi_info *hints = fi_allocinfo();
    hints->fabric_attr->prov_name = strdup("causeway");
    hints->ep_attr->type = FI_EP_RDM;
    hints->caps = FI_TAGGED;
    uint64_t flags = name ? 0 : FI_SOURCE;
    int code = -FI_ENODATA;
    for (int tries = 0; tries < TRIES && code == -FI_ENODATA; tries++) {
        if (tries > 0) usleep(50000);
        code = fi_getinfo(FI_VERSION(1, 17), name, port, flags, hints, &info);
    }
    check("fi_getinfo", code);
    fi_freeinfo(hints);
}

/* Opens an endpoint with its completion queue and its table of addresses. */
static void open_endpoint(void) {
    struct fi_av_attr table = {.type = FI_AV_UNSPEC};
    struct fi_cq_attr queue = {.format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_UNSPEC};
    check("fi_fabric", fi_fabric(info->fabric_attr, &fabric, NULL));
    check("fi_domain", fi_domain(fabric, info, &domain, NULL));
    check("fi_av_open", fi_av_open(domain, &table, &av, NULL));
    check("fi_cq_open", fi_cq_open(domain, &queue, &cq, NULL));
    check("fi_endpoint", fi_endpoint(domain, info, &ep, NULL));
    check("fi_ep_bind", fi_ep_bind(ep, &av->fid, 0));
    check("fi_ep_bind", fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV));
    check("fi_enable", fi_enable(ep));
}

static fi_addr_t insert(const void *address) {
    fi_addr_t at;
    if (fi_av_insert(av, address, 1, &at, 0, NULL) != 1) check("fi_av_insert", -FI_EINVAL);
    return at;
}

/* Waits for the next completion and returns its tag. */
static uint64_t complete(void) {
    struct fi_cq_tagged_entry entry;
    ssize_t count;
    do count = fi_cq_sread(cq, &entry, 1, NULL, -1);
    while (count == -FI_EAGAIN || count == -FI_EINTR);
    check("fi_cq_sread", count);
    return entry.tag;
}

static void send_to(fi_addr_t to, const void *bytes, size_t len, uint64_t tag) {
    ssize_t code;
    while ((code = fi_tinject(ep, bytes, len, to, tag)) == -FI_EAGAIN) fi_cq_read(cq, NULL, 0);
    check("fi_tinject", code);
}

/* Receives a message with any tag and returns the tag. */
static uint64_t receive(void *bytes, size_t len) {
    ssize_t code;
    while ((code = fi_trecv(ep, bytes, len, NULL, FI_ADDR_UNSPEC, 0, ~0ull, NULL)) == -FI_EAGAIN)
        fi_cq_read(cq, NULL, 0);
    check("fi_trecv", code);
    return complete();
}

static void answer(void) {
    char bytes[LEN];
    unsigned char partner[ADDRESS_MAX];
    puts("answering");
    fflush(stdout);
    /* The first message contains the partner's address: a completion does not name the sender. */
    receive(partner, sizeof partner);
    fi_addr_t to = insert(partner);
    while (receive(bytes, LEN) == PING) send_to(to, bytes, LEN, PONG);
    send_to(to, NULL, 0, HELLO);
}

static void ping(int count) {
    char out[LEN], in[LEN];
    unsigned char own[ADDRESS_MAX];
    size_t len = sizeof own;
    fi_addr_t to = insert(info->dest_addr);
    check("fi_getname", fi_getname(&ep->fid, own, &len));
    send_to(to, own, len, HELLO);
    struct timespec from, until;
    clock_gettime(CLOCK_MONOTONIC, &from);
    for (int number = 0; number < count; number++) {
        memset(out, number, LEN);
        send_to(to, out, LEN, PING);
        if (receive(in, LEN) != PONG || memcmp(in, out, LEN) != 0) {
            fprintf(stderr, "fi_pingpong: answer %d has other contents\n", number);
            exit(1);
        }
    }
    clock_gettime(CLOCK_MONOTONIC, &until);
    double us = (until.tv_sec - from.tv_sec) * 1e6 + (until.tv_nsec - from.tv_nsec) / 1e3;
    send_to(to, NULL, 0, HELLO);
    receive(in, LEN);
    printf("%d messages of %d bytes answered, %.2f us each way\n", count, LEN, us / count / 2);
}

int main(int argc, char **argv) {
    int count = argc > 3 ? atoi(argv[3]) : 1000;
    if (argc < 2 || count < 1) {
        fprintf(stderr, "usage: fi_pingpong PORT [NAME [COUNT]]\n");
        return 2;
    }
    find(argc > 2 ? argv[2] : NULL, argv[1]);
    open_endpoint();
    if (argc > 2)
        ping(count);
    else
        answer();
    struct fid *all[] = {&ep->fid, &cq->fid, &av->fid, &domain->fid, &fabric->fid};
    for (size_t at = 0; at < sizeof all / sizeof *all; at++) check("fi_close", fi_close(all[at]));
    fi_freeinfo(info);
    return 0;
}

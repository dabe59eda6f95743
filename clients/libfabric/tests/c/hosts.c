/* Two endpoints with NICs on two hosts, and daemons that are killed while they send. A line on
 * standard output requests an action on the first daemon from the test, which answers by a line
 * on standard input. */
#include "pair.h"

#define WINDOW 24
#define LONG_BYTES 200000

static struct fi_info *infos[2];
static struct fid_fabric *fabrics[2];
static struct fid_domain *domains[2];
static struct fid_av *avs[2];

/* Messages from an endpoint to the other: all have the same tag, and contain their number. */
struct stream {
    struct end *from, *to;
    fi_addr_t at;
    int sent, received, slots[WINDOW], values[WINDOW], contexts[WINDOW];
    int posted, completed, injected;
};

static void told(const char *what) {
    char answer[8];
    puts(what);
    CHECK(fgets(answer, sizeof answer, stdin));
}

static void open_host(int at, const char *board, struct end *end) {
    struct fi_info *hints = fi_allocinfo();
    struct fi_av_attr attr = {.type = FI_AV_UNSPEC};
    hints->fabric_attr->prov_name = strdup("causeway");
    hints->domain_attr->name = strdup(board);
    hints->ep_attr->type = FI_EP_RDM;
    hints->caps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_DIRECTED_RECV | FI_MULTI_RECV |
                  FI_SOURCE;
    CHECK(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &infos[at]) == 0);
    fi_freeinfo(hints);
    CHECK(fi_fabric(infos[at]->fabric_attr, &fabrics[at], NULL) == 0);
    CHECK(fi_domain(fabrics[at], infos[at], &domains[at], NULL) == 0);
    CHECK(fi_av_open(domains[at], &attr, &avs[at], NULL) == 0);
    info = infos[at];
    domain = domains[at];
    av = avs[at];
    open_end(end, FI_WAIT_NONE, 0);
}

static void close_host(int at, struct end *end) {
    close_end(end);
    CHECK(fi_close(&avs[at]->fid) == 0 && fi_close(&domains[at]->fid) == 0);
    CHECK(fi_close(&fabrics[at]->fid) == 0);
    fi_freeinfo(infos[at]);
}

static struct stream streams[2];

/* Reads a queue: completions of receives are in the order of the messages. */
static void look(struct end *end) {
    entry entry;
    fault failed = {0};
    for (;;) {
        ssize_t count = fi_cq_read(end->cq, &entry, 1);
        if (count == -FI_EAGAIN)
            return;
        if (count != 1) {
            CHECK(fi_cq_readerr(end->cq, &failed, 0) == 1);
            printf("error %d: %s\n", failed.err, fi_strerror(failed.err));
            exit(1);
        }
        struct stream *in = streams[0].to == end ? &streams[0] : &streams[1];
        struct stream *out = streams[0].from == end ? &streams[0] : &streams[1];
        if (entry.flags & FI_RECV) {
            int slot = in->received % WINDOW;
            CHECK(entry.op_context == &in->slots[slot]);
            if (in->slots[slot] != in->received) {
                printf("message %d came in place of %d\n", in->slots[slot], in->received);
                exit(1);
            }
            in->received++;
        } else {
            CHECK((int *)entry.op_context >= out->contexts &&
                  (int *)entry.op_context < out->contexts + WINDOW);
            out->completed++;
        }
    }
}

/* Continues a stream until `count` messages are sent, two of three injected. */
static void send_some(struct stream *stream, int until) {
    while (stream->posted < until && stream->posted - stream->received < WINDOW) {
        int *slot = &stream->slots[stream->posted % WINDOW];
        *slot = -1;
        WELL(fi_trecv(stream->to->ep, slot, sizeof *slot, NULL, FI_ADDR_UNSPEC, 7, 0, slot));
        stream->posted++;
    }
    while (stream->sent < until && stream->sent - stream->received < WINDOW / 2) {
        int at = stream->sent % WINDOW;
        stream->values[at] = stream->sent;
        ssize_t got;
        if (stream->sent % 3)
            got = fi_tinject(stream->from->ep, &stream->values[at], sizeof(int), stream->at, 7);
        else
            got = fi_tsend(stream->from->ep, &stream->values[at], sizeof(int), NULL, stream->at, 7,
                           &stream->contexts[at]);
        if (got == -FI_EAGAIN)
            return;
        CHECK(got == 0);
        stream->injected += stream->sent % 3 != 0;
        stream->sent++;
    }
}

/* Continues both streams until their messages have arrived, or for `most` seconds. */
static bool run(int until, double most) {
    double since = now();
    for (;;) {
        bool all = true;
        for (int i = 0; i < 2; i++) {
            send_some(&streams[i], until);
            all &= streams[i].received >= until &&
                   streams[i].completed + streams[i].injected >= until;
        }
        look(&a);
        look(&b);
        if (all)
            return true;
        if (now() - since > most)
            return false;
    }
}

static void all(int until) {
    if (!run(until, 30)) {
        for (int i = 0; i < 2; i++)
            printf("stream %d: %d sent, %d received, %d completed, %d injected\n", i,
                   streams[i].sent, streams[i].received, streams[i].completed,
                   streams[i].injected);
        exit(1);
    }
}

/* A long message is received, or fails at both ends. */
static void send_long(bool fails) {
    static unsigned char out[LONG_BYTES], in[LONG_BYTES];
    int done = 0, failed = 0;
    fill(out, LONG_BYTES, 3);
    WELL(fi_tsend(a.ep, out, LONG_BYTES, NULL, streams[0].at, 9, &words[1]));
    if (fails) {
        told("kill");
        told("start");
    }
    WELL(fi_trecv(b.ep, in, LONG_BYTES, NULL, FI_ADDR_UNSPEC, 9, 0, &words[2]));
    for (double since = now(); done + failed < 2;) {
        struct end *ends[2] = {&a, &b};
        CHECK(now() - since < 30);
        for (int i = 0; i < 2; i++) {
            entry entry;
            fault fault = {0};
            ssize_t count = fi_cq_read(ends[i]->cq, &entry, 1);
            if (count == -FI_EAVAIL) {
                CHECK(fi_cq_readerr(ends[i]->cq, &fault, 0) == 1);
                CHECK(fault.op_context == &words[i + 1]);
                failed++;
            } else if (count == 1) {
                CHECK(entry.op_context == &words[i + 1]);
                done++;
            }
        }
    }
    CHECK(fails ? failed == 2 : done == 2 && is(in, LONG_BYTES, 3));
}

int main(void) {
    fi_addr_t of_a;
    setvbuf(stdout, NULL, _IONBF, 0);
    open_host(0, "a:0", &a);
    open_host(1, "b:0", &b);
    CHECK(fi_av_insert(avs[0], b.name, 1, &streams[0].at, 0, NULL) == 1);
    CHECK(fi_av_insert(avs[1], a.name, 1, &of_a, 0, NULL) == 1);
    streams[0].from = streams[1].to = &a;
    streams[0].to = streams[1].from = &b;
    streams[1].at = of_a;
    all(200);
    /* In the middle of both streams, with messages that are sent while there is no daemon. */
    for (int round = 1; round <= 3; round++) {
        run(200 + 2000 * round - 1000, 0.01);
        told("kill");
        run(200 + 2000 * round - 500, 0.3);
        told("start");
        all(200 + 2000 * round);
    }
    /* Between two messages, long after the last. */
    told("kill");
    told("start");
    all(6300);
    send_long(false);
    send_long(true);
    send_long(false);
    all(6400);
    close_host(0, &a);
    close_host(1, &b);
    puts("ok");
    return 0;
}

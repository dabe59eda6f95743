/* All calls that send and receive, and their completions. */
#include "pair.h"

#define MOST (1 << 20)

static unsigned char out[MOST], in[MOST + 64];
static const size_t LENGTHS[] = {0, 1, 15, 16, 17, 4095, 4096, 4097, 8175, 8176, 8177,
                                 8192, 32768, 32769, 100000, MOST};

/* Every length and kind of call, with the send first and the receive first, to another endpoint
 * and to itself. */
static void lengths(struct end *from, struct end *to) {
    for (size_t i = 0; i < sizeof LENGTHS / sizeof *LENGTHS; i++) {
        size_t len = LENGTHS[i], half = len / 3;
        for (int how = 0; how < 12; how++) {
            struct iovec iov[4] = {{out, half}, {NULL, 0}, {out + half, len - half}, {out, 0}};
            struct iovec into[3] = {{in, 0}, {in, half + 1}, {in + half + 1, MOST - half - 1}};
            struct fi_msg_tagged tagged = {iov, NULL, 4, to->addr, 7, 0, &words[1], 77};
            struct fi_msg plain = {iov, NULL, 4, to->addr, &words[1], 77};
            bool late = how & 1, data = false, told = true;
            int kind = how / 2;
            entry got = {0};
            if (kind >= 4 && len > info->tx_attr->inject_size)
                continue;
            fill(out, len, how + (int)len);
            memset(in, 0xee, len + 1);
            for (int turn = 0; turn < 2; turn++) {
                if (turn == late) {
                    if (kind == 1)
                        WELL(fi_trecvv(to->ep, into, NULL, 3, from->addr, 6, 1, &words[2]));
                    else if (kind == 3)
                        WELL(fi_recvv(to->ep, into, NULL, 3, FI_ADDR_UNSPEC, &words[2]));
                    else if (kind % 2)
                        WELL(fi_recv(to->ep, in, MOST, NULL, from->addr, &words[2]));
                    else if (kind == 2)
                        WELL(fi_recv(to->ep, in, len, NULL, FI_ADDR_UNSPEC, &words[2]));
                    else
                        WELL(fi_trecv(to->ep, in, len, NULL, FI_ADDR_UNSPEC, 7, 0, &words[2]));
                    continue;
                }
                if (kind == 0)
                    WELL(fi_tsend(from->ep, out, len, NULL, to->addr, 7, &words[1]));
                else if (kind == 1)
                    WELL(fi_tsendmsg(from->ep, &tagged,
                                     FI_REMOTE_CQ_DATA | FI_COMPLETION | FI_DELIVERY_COMPLETE));
                else if (kind == 2)
                    WELL(fi_senddata(from->ep, out, len, NULL, 77, to->addr, &words[1]));
                else if (kind == 3)
                    WELL(fi_sendmsg(from->ep, &plain, FI_COMPLETION));
                else if (kind == 4)
                    WELL(fi_tinjectdata(from->ep, out, len, 77, to->addr, 7));
                else
                    WELL(fi_inject(from->ep, out, len, to->addr));
                data = kind == 1 || kind == 2 || kind == 4;
                if (kind >= 4) {
                    /* The buffer may be reused at once. */
                    fill(out, len, 99);
                    told = false;
                }
            }
            if (from == to) {
                /* In either order. */
                entry both[2];
                fault failed;
                for (int at = 0; at < (told ? 2 : 1); at++) {
                    CHECK(next(to, &both[at], &failed, NULL) == 0);
                    if (both[at].op_context == &words[2])
                        got = both[at];
                }
            } else {
                got = well(to, &words[2]);
                if (told) {
                    entry sent = well(from, &words[1]);
                    CHECK(sent.flags & FI_SEND);
                    CHECK(!!(sent.flags & FI_TAGGED) == (kind < 2));
                }
            }
            CHECK(got.len == len && (got.flags & FI_RECV));
            CHECK(!!(got.flags & FI_REMOTE_CQ_DATA) == data && (!data || got.data == 77));
            if (kind == 0 || kind == 1 || kind == 4)
                CHECK((got.flags & FI_TAGGED) && got.tag == 7);
            else
                CHECK(got.flags & FI_MSG);
            CHECK(is(in, len, how + (int)len));
            CHECK(len == MOST || in[len] == 0xee);
        }
    }
    silent(&a);
    silent(&b);
}

/* A message that is too long is cut, and the completion contains the number of missing bytes. */
static void truncation(void) {
    const size_t sizes[] = {10, 8000, 50000};
    for (int i = 0; i < 3; i++) {
        size_t len = sizes[i];
        fault cut;
        fill(out, len, i);
        memset(in, 0xee, len);
        WELL(fi_trecv(b.ep, in, len - 4, NULL, a.addr, 1, 0, &words[2]));
        WELL(fi_tsend(a.ep, out, len, NULL, b.addr, 1, &words[1]));
        cut = badly(&b, &words[2]);
        CHECK(cut.err == FI_ETRUNC && cut.olen == 4 && cut.len == len - 4 && cut.tag == 1);
        CHECK(is(in, len - 4, i) && in[len - 4] == 0xee);
        well(&a, &words[1]);
    }
}

static ssize_t look(uint64_t flags, uint64_t tag, fi_addr_t from, void *buf, size_t len) {
    struct iovec into = {buf, len};
    struct fi_msg_tagged msg = {&into, NULL, buf ? 1 : 0, from, tag, 0, &words[2], 0};
    return fi_trecvmsg(b.ep, &msg, flags);
}

/* Messages are peeked at, claimed and discarded, short and long ones. */
static void peeks(void) {
    const size_t sizes[] = {100, 60000};
    CHECK(look(FI_PEEK, 5, FI_ADDR_UNSPEC, NULL, 0) == 0);
    CHECK(badly(&b, &words[2]).err == FI_ENOMSG);
    CHECK(look(FI_PEEK | FI_CLAIM, 5, FI_ADDR_UNSPEC, NULL, 0) == 0);
    CHECK(badly(&b, &words[2]).err == FI_ENOMSG);
    CHECK(look(FI_CLAIM, 5, FI_ADDR_UNSPEC, in, 10) == -FI_EINVAL);
    CHECK(look(FI_CLAIM | FI_DISCARD, 5, FI_ADDR_UNSPEC, NULL, 0) == -FI_EINVAL);
    for (int i = 0; i < 2; i++) {
        size_t len = sizes[i];
        entry got;
        for (int at = 0; at < 3; at++) {
            fill(out + at * len, len, at);
            WELL(fi_tsenddata(a.ep, out + at * len, len, NULL, 40 + at, b.addr, 5, &words[at + 10]));
        }
        for (double since = now();;) {
            /* An application that only peeks sees new messages. */
            CHECK(now() - since < 5);
            entry told;
            fault failed;
            CHECK(look(FI_PEEK, 5, a.addr, NULL, 0) == 0);
            ssize_t count = fi_cq_read(b.cq, &told, 1);
            if (count == 1) {
                CHECK(told.len == len && told.data == 40 && told.op_context == &words[2]);
                break;
            }
            CHECK(count == -FI_EAVAIL && fi_cq_readerr(b.cq, &failed, 0) == 1);
            CHECK(failed.err == FI_ENOMSG);
        }
        for (int at = 0; at < 100; at++)
            go_on();
        CHECK(look(FI_PEEK, 6, a.addr, NULL, 0) == 0);
        CHECK(badly(&b, &words[2]).err == FI_ENOMSG);
        CHECK(look(FI_PEEK, 5, b.addr, NULL, 0) == 0);
        CHECK(badly(&b, &words[2]).err == FI_ENOMSG);
        CHECK(look(FI_PEEK | FI_CLAIM, 5, a.addr, NULL, 0) == 0);
        got = well(&b, &words[2]);
        CHECK(got.len == len && got.data == 40 && got.tag == 5);
        /* A claimed message matches no other receive. */
        CHECK(look(FI_PEEK | FI_DISCARD, 5, a.addr, NULL, 0) == 0);
        got = well(&b, &words[2]);
        CHECK(got.len == len && got.data == 41);
        CHECK(look(FI_CLAIM, 5, a.addr, in, MOST) == 0);
        got = well(&b, &words[2]);
        CHECK(got.len == len && got.data == 40 && is(in, len, 0));
        CHECK(look(FI_PEEK | FI_CLAIM, 5, a.addr, NULL, 0) == 0);
        CHECK(well(&b, &words[2]).data == 42);
        CHECK(look(FI_CLAIM | FI_DISCARD, 5, a.addr, NULL, 0) == 0);
        well(&b, &words[2]);
        /* All messages count as sent in any case. */
        for (int at = 0, all = 0; at < 3; at++) {
            entry told;
            fault failed;
            CHECK(next(&a, &told, &failed, NULL) == 0);
            all |= 1 << ((int *)told.op_context - words - 10);
            CHECK(at < 2 || all == 7);
        }
    }
    silent(&b);
}

/* Receives are cancelled, also directed ones; a receive that does not exist is not. */
static void cancels(void) {
    fault gone;
    WELL(fi_trecv(b.ep, in, 10, NULL, FI_ADDR_UNSPEC, 9, 0, &words[3]));
    WELL(fi_trecv(b.ep, in, 10, NULL, a.addr, 9, 0, &words[4]));
    CHECK(fi_cancel(&b.ep->fid, &words[5]) == -FI_ENOENT);
    CHECK(fi_cancel(&b.ep->fid, &words[3]) == 0);
    gone = badly(&b, &words[3]);
    CHECK(gone.err == FI_ECANCELED);
    CHECK(fi_cancel(&b.ep->fid, &words[3]) == -FI_ENOENT);
    WELL(fi_tsend(a.ep, out, 10, NULL, b.addr, 9, &words[1]));
    well(&b, &words[4]);
    well(&a, &words[1]);
}

/* A multi-receive buffer: each message is placed behind the previous one, until it is full. */
static void multi(void) {
    struct iovec into = {in, 1000};
    struct fi_msg msg = {&into, NULL, 1, FI_ADDR_UNSPEC, &words[6], 0};
    size_t min = 200, got, len = sizeof got, used = 0;
    bool over = false;
    CHECK(fi_setopt(&b.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &min, sizeof min) == 0);
    CHECK(fi_getopt(&b.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &got, &len) == 0);
    CHECK(got == 200 && len == sizeof got);
    uint64_t before = fi_cntr_read(b.received);
    CHECK(fi_recvmsg(b.ep, &msg, FI_MULTI_RECV) == 0);
    for (int at = 0; at < 8 && !over; at++) {
        entry told;
        fill(out, 120, at);
        WELL(fi_send(a.ep, out, 120, NULL, b.addr, &words[1]));
        told = well(&b, &words[6]);
        well(&a, &words[1]);
        CHECK(told.len == 120 && is(told.buf, 120, at));
        CHECK((unsigned char *)told.buf >= in + used && (unsigned char *)told.buf + 120 <= in + 1000);
        used = (unsigned char *)told.buf + 120 - in;
        over = told.flags & FI_MULTI_RECV;
        CHECK(fi_cntr_read(b.received) == before + at + 1);
    }
    CHECK(over && used > 800);
    silent(&b);
    /* Long messages as well; the last is cut. */
    into.iov_len = 100000;
    CHECK(fi_recvmsg(b.ep, &msg, FI_MULTI_RECV) == 0);
    fill(out, 70000, 1);
    WELL(fi_send(a.ep, out, 70000, NULL, b.addr, &words[1]));
    entry told = well(&b, &words[6]);
    CHECK(told.len == 70000 && told.buf == in && is(in, 70000, 1) && !(told.flags & FI_MULTI_RECV));
    well(&a, &words[1]);
    WELL(fi_send(a.ep, out, 40000, NULL, b.addr, &words[1]));
    fault cut = badly(&b, &words[6]);
    CHECK(cut.err == FI_ETRUNC && cut.olen == 10000);
    told = well(&b, &words[6]);
    CHECK(told.flags & FI_MULTI_RECV);
    well(&a, &words[1]);
    /* A cancelled buffer is reported once. */
    CHECK(fi_recvmsg(b.ep, &msg, FI_MULTI_RECV) == 0);
    CHECK(fi_cancel(&b.ep->fid, &words[6]) == 0);
    CHECK(badly(&b, &words[6]).err == FI_ECANCELED);
    silent(&b);
    /* Of two buffers the first is filled before the second gets a message; a waiting buffer can
     * be cancelled. */
    into.iov_len = 1000;
    CHECK(fi_recvmsg(b.ep, &msg, FI_MULTI_RECV) == 0);
    for (int at = 7; at < 9; at++) {
        into.iov_base = in + 2000 * (at - 6);
        msg.context = &words[at];
        CHECK(fi_recvmsg(b.ep, &msg, FI_MULTI_RECV) == 0);
    }
    CHECK(fi_cancel(&b.ep->fid, &words[8]) == 0);
    CHECK(badly(&b, &words[8]).err == FI_ECANCELED);
    for (int at = 0; at < 14; at++) {
        fill(out, 120, at);
        WELL(fi_inject(a.ep, out, 120, b.addr));
    }
    for (int at = 0; at < 14; at++) {
        told = well(&b, &words[at < 7 ? 6 : 7]);
        CHECK(told.len == 120 && is(told.buf, 120, at));
        CHECK(!!(told.flags & FI_MULTI_RECV) == (at % 7 == 6));
    }
    silent(&b);
    into.iov_len = 100;
    CHECK(fi_recvmsg(b.ep, &msg, FI_MULTI_RECV) == -FI_EINVAL);
}

/* All operations on an endpoint that does not exist fail. */
static void nobody(void) {
    struct iovec into = {in, 1000};
    struct end gone = {0};
    struct fi_msg msg = {&into, NULL, 1, 0, &words[7], 0};
    open_end(&gone, FI_WAIT_NONE, 0);
    msg.addr = gone.addr;
    close_end(&gone);
    double since = now();
    WELL(fi_tsend(a.ep, out, 100000, NULL, gone.addr, 1, &words[3]));
    fault failed = badly(&a, &words[3]);
    CHECK(failed.err == FI_ECONNREFUSED);
    CHECK(fi_cq_strerror(a.cq, failed.prov_errno, NULL, NULL, 0)[0]);
    WELL(fi_trecv(a.ep, in, 10, NULL, gone.addr, 1, 0, &words[4]));
    CHECK(badly(&a, &words[4]).err == FI_ECONNREFUSED);
    CHECK(fi_recvmsg(a.ep, &msg, FI_MULTI_RECV) == 0);
    CHECK(badly(&a, &words[7]).err == FI_ECONNREFUSED);
    WELL(fi_read(a.ep, in, 10, NULL, gone.addr, 0, 1, &words[5]));
    CHECK(badly(&a, &words[5]).err == FI_ECONNREFUSED);
    WELL(fi_write(a.ep, in, 100000, NULL, gone.addr, 0, 1, &words[5]));
    CHECK(badly(&a, &words[5]).err == FI_ECONNREFUSED);
    CHECK(now() - since < 2);
    silent(&a);
    CHECK(fi_av_remove(av, &gone.addr, 1, 0) == 0);
    CHECK(fi_av_remove(av, &gone.addr, 1, 0) == -FI_EINVAL);
    CHECK(fi_tsend(a.ep, out, 10, NULL, gone.addr, 1, &words[3]) == -FI_EINVAL);
    CHECK(fi_tsend(a.ep, out, 10, NULL, FI_ADDR_UNSPEC, 1, &words[3]) == -FI_EINVAL);
    CHECK(fi_tsend(a.ep, out, 10, NULL, 1 << 30, 1, &words[3]) == -FI_EINVAL);
}

/* With selective completion only flagged operations and errors are reported; counters count all. */
static void selective(void) {
    struct end c = {0};
    struct iovec iov = {out, 8};
    struct fi_msg_tagged msg = {&iov, NULL, 1, 0, 3, 0, &words[8], 0};
    uint64_t before = fi_cntr_read(a.received);
    open_end(&c, FI_WAIT_NONE, FI_SELECTIVE_COMPLETION);
    msg.addr = a.addr;
    for (int at = 0; at < 4; at++)
        WELL(fi_trecv(a.ep, in, 8, NULL, c.addr, 3, 0, &words[2]));
    WELL(fi_tsend(c.ep, out, 8, NULL, a.addr, 3, &words[1]));
    WELL(fi_tinject(c.ep, out, 8, a.addr, 3));
    CHECK(fi_tsendmsg(c.ep, &msg, 0) == 0);
    CHECK(fi_tsendmsg(c.ep, &msg, FI_COMPLETION) == 0);
    double since = now();
    while (fi_cntr_read(c.sent) < 4 || fi_cntr_read(a.received) < before + 4)
        CHECK(now() - since < 5);
    CHECK(fi_cntr_read(c.sent) == 4 && fi_cntr_readerr(c.sent) == 0);
    well(&c, &words[8]);
    for (int at = 0; at < 4; at++)
        well(&a, &words[2]);
    entry told;
    CHECK(fi_cq_read(c.cq, &told, 1) == -FI_EAGAIN);
    CHECK(fi_cntr_add(c.sent, 6) == 0 && fi_cntr_read(c.sent) == 10);
    CHECK(fi_cntr_wait(c.sent, 10, 0) == 0 && fi_cntr_wait(c.sent, 11, 20) == -FI_ETIMEDOUT);
    CHECK(fi_cntr_set(c.sent, 1) == 0 && fi_cntr_read(c.sent) == 1);
    close_end(&c);
}

static void wrong(void) {
    struct fid_ep *ep;
    struct fid_cq *cq;
    struct fid_cntr *cntr;
    struct fi_cq_attr attr = {.format = FI_CQ_FORMAT_TAGGED + 1};
    struct fi_cntr_attr counts = {.events = 9};
    struct iovec iov[9] = {{out, 1}};
    CHECK(fi_cq_open(domain, &attr, &cq, NULL) < 0);
    attr = (struct fi_cq_attr){.wait_obj = FI_WAIT_SET};
    CHECK(fi_cq_open(domain, &attr, &cq, NULL) == -FI_ENOSYS);
    CHECK(fi_cntr_open(domain, &counts, &cntr, NULL) == -FI_ENOSYS);
    CHECK(fi_tsendv(a.ep, iov, NULL, 9, b.addr, 1, NULL) == -FI_EINVAL);
    CHECK(fi_tsend(a.ep, out, 1, NULL, b.addr, 1ull << 63, NULL) == -FI_EINVAL);
    CHECK(fi_inject(a.ep, out, info->tx_attr->inject_size + 1, b.addr) == -FI_EMSGSIZE);
    CHECK(fi_send(a.ep, out, 1ull << 32, NULL, b.addr, NULL) == -FI_EMSGSIZE);
    CHECK(fi_ep_bind(a.ep, &a.cq->fid, FI_RECV) == -FI_EINVAL);
    CHECK(fi_ep_bind(a.ep, &av->fid, 0) == -FI_EOPBADSTATE);
    CHECK(fi_endpoint(domain, info, &ep, NULL) == 0);
    CHECK(fi_enable(ep) == -FI_ENOAV);
    CHECK(fi_ep_bind(ep, &av->fid, 0) == 0);
    CHECK(fi_enable(ep) == -FI_ENOCQ);
    CHECK(fi_ep_bind(ep, &a.cq->fid, 0) == -FI_EBADFLAGS);
    CHECK(fi_send(ep, out, 1, NULL, a.addr, NULL) == -FI_EOPBADSTATE);
    CHECK(fi_close(&av->fid) == -FI_EBUSY);
    CHECK(fi_close(&ep->fid) == 0);
    info->ep_attr->type = FI_EP_MSG;
    CHECK(fi_endpoint(domain, info, &ep, NULL) == -FI_EINVAL);
    info->ep_attr->type = FI_EP_RDM;
    silent(&a);
}

/* More messages than there is room for: further sends are refused for a time, and no message is
 * lost. */
static void many(void) {
    enum { COUNT = 20000 };
    static uint32_t numbers[COUNT], seen[COUNT];
    int received = 0, sent = 0, told = 0;
    double since = now();
    for (int at = 0; at < COUNT; at++)
        numbers[at] = at;
    for (int at = 0; at < COUNT; at++)
        WELL(fi_trecv(b.ep, &seen[at], 4, NULL, FI_ADDR_UNSPEC, 11, 0, &words[2]));
    while (received < COUNT || told < COUNT) {
        entry some[64];
        while (sent < COUNT) {
            ssize_t got = fi_tsend(a.ep, &numbers[sent], 4, NULL, b.addr, 11, &words[1]);
            if (got == -FI_EAGAIN)
                break;
            CHECK(got == 0);
            sent++;
        }
        ssize_t count = fi_cq_read(b.cq, some, 64);
        received += count > 0 ? count : 0;
        count = fi_cq_read(a.cq, some, 64);
        told += count > 0 ? count : 0;
        CHECK(now() - since < 15);
    }
    for (int at = 0; at < COUNT; at++)
        CHECK(seen[at] == (uint32_t)at);
}

/* With and without posted receives, the next read reports each message once, in order, and
 * counts it. */
static void straight(void) {
    uint64_t before = fi_cntr_read(b.received);
    silent(&a);
    silent(&b);
    for (int i = 0; i < 300; i++) {
        long out[2] = {i, -i}, in[2] = {0}, early = 0;
        entry told[2] = {{0}};
        bool late = i & 1;
        fi_addr_t from = i & 2 ? a.addr : FI_ADDR_UNSPEC, source[2];
        if (!late)
            WELL(fi_trecv(b.ep, in, sizeof in, NULL, from, 40, 0, &words[2]));
        WELL(fi_tinjectdata(a.ep, out, sizeof *out << (i % 3 == 0), i, b.addr, 40));
        if (late) {
            /* An unexpected message, and a message that precedes it. */
            WELL(fi_tinject(a.ep, &out[1], sizeof *out, b.addr, 41));
            for (int turn = 0; turn < 3; turn++)
                go_on();
            WELL(fi_trecv(b.ep, &early, sizeof early, NULL, from, 41, 0, &words[3]));
            WELL(fi_trecv(b.ep, in, sizeof in, NULL, from, 40, 0, &words[2]));
            CHECK(fi_cq_readfrom(b.cq, told, 1, source) == 1);
            CHECK(told->op_context == &words[3] && told->tag == 41 && early == -i);
        }
        CHECK(fi_cq_readfrom(b.cq, told, 2, source) == 1);
        CHECK(told->op_context == &words[2] && told->tag == 40 && told->data == (uint64_t)i);
        CHECK(told->flags == (FI_RECV | FI_TAGGED | FI_REMOTE_CQ_DATA) && *source == a.addr);
        CHECK(told->buf == in && told->len == sizeof *out << (i % 3 == 0));
        CHECK(in[0] == i && in[1] == (i % 3 ? 0 : -i));
        CHECK(fi_cq_read(b.cq, told, 1) == -FI_EAGAIN);
    }
    /* Many in a row: each read returns some, at most as many as it has room for. */
    for (int room = 1; room <= 20; room += 19) {
        long out = 0, in[100] = {0}, next = 0;
        entry told[20];
        fi_addr_t source[20];
        for (int i = 0; i < 100; i++)
            WELL(fi_trecv(b.ep, &in[i], sizeof in[i], NULL, a.addr, 42, 0, &words[i % 64]));
        for (; out < 100; out++)
            WELL(fi_tinject(a.ep, &out, sizeof out, b.addr, 42));
        while (next < 100) {
            ssize_t count = fi_cq_readfrom(b.cq, told, room, source);
            CHECK(count >= 1 && count <= room);
            for (ssize_t i = 0; i < count; i++, next++)
                CHECK(told[i].op_context == &words[next % 64] && in[next] == next &&
                      source[i] == a.addr);
        }
        CHECK(fi_cq_read(b.cq, told, 1) == -FI_EAGAIN);
    }
    CHECK(fi_cntr_read(b.received) == before + 450 + 200);
}

int main(void) {
    open_domain(0, FI_PROGRESS_MANUAL);
    open_end(&a, FI_WAIT_NONE, 0);
    open_end(&b, FI_WAIT_NONE, 0);
    lengths(&a, &b);
    lengths(&b, &a);
    lengths(&a, &a);
    truncation();
    peeks();
    cancels();
    multi();
    nobody();
    selective();
    wrong();
    many();
    straight();
    close_end(&a);
    close_end(&b);
    close_domain();
    puts("ok");
    return 0;
}

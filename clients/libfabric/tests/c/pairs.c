/* A single connection for each pair of endpoints: look-up of an endpoint by its service, and
 * messages that are sent before the connect, by two indices of an endpoint, and at close. */
#include "pair.h"

#define MANY 1000

static struct fi_info *asks(const char *node, const char *service, uint64_t flags, int *err) {
    struct fi_info *hints = fi_allocinfo(), *found = NULL;
    CHECK(hints);
    hints->fabric_attr->prov_name = strdup("causeway");
    hints->ep_attr->type = FI_EP_RDM;
    hints->caps = FI_MSG | FI_TAGGED;
    *err = fi_getinfo(FI_VERSION(1, 17), node, service, flags, hints, &found);
    fi_freeinfo(hints);
    return found;
}

/* An endpoint is found by its service, on this host and by the name of its NIC. */
static void service(void) {
    const char *nodes[] = {NULL, "localhost", "127.0.0.1", "a:0"};
    struct fi_info *plain, *other;
    struct fid_ep *twin;
    size_t len = NAME_BYTES;
    char name[NAME_BYTES];
    int err;

    open_domain(0, FI_PROGRESS_MANUAL);
    plain = info;
    info = asks(NULL, "7471", FI_SOURCE, &err);
    CHECK(err == 0 && info->src_addrlen == NAME_BYTES && !info->dest_addr);
    open_end(&b, FI_WAIT_NONE, 0);
    CHECK(fi_endpoint(domain, info, &twin, NULL) == -FI_EADDRINUSE);
    other = asks("a:0", "7472", FI_SOURCE, &err);
    CHECK(err == 0 && fi_endpoint(domain, other, &twin, NULL) == 0);
    CHECK(fi_getname(&twin->fid, name, &len) == 0 && memcmp(name, b.name, NAME_BYTES) != 0);
    fi_freeinfo(info);
    info = plain;
    open_end(&a, FI_WAIT_NONE, 0);
    for (size_t at = 0; at < sizeof nodes / sizeof *nodes; at++) {
        struct fi_info *found = asks(nodes[at], at % 2 ? "07471" : "7471", 0, &err);
        CHECK(err == 0 && found->dest_addrlen == NAME_BYTES);
        CHECK(memcmp(found->dest_addr, b.name, NAME_BYTES) == 0);
        fi_freeinfo(found);
    }
    len = NAME_BYTES;
    CHECK(fi_av_lookup(av, b.addr, name, &len) == 0 && memcmp(name, b.name, NAME_BYTES) == 0);
    WELL(fi_recv(b.ep, words, 4, NULL, FI_ADDR_UNSPEC, &words[2]));
    WELL(fi_inject(a.ep, &words[1], 4, b.addr));
    well(&b, &words[2]);
    CHECK(asks("localhost", "7473", 0, &err) == NULL && err == -FI_ENODATA);
    CHECK(asks("no-such-board:9", "7471", 0, &err) == NULL && err == -FI_ENODATA);
    CHECK(asks("no-such-board:9", "7471", FI_SOURCE, &err) == NULL && err == -FI_ENODATA);
    CHECK(fi_close(&twin->fid) == 0);
    twin = NULL;
    CHECK(fi_endpoint(domain, other, &twin, NULL) == 0 && fi_close(&twin->fid) == 0);
    fi_freeinfo(other);
    close_end(&a);
    close_end(&b);
    close_domain();
}

/* Requests an action on the daemon, and waits for it. */
static void told(const char *what) {
    char line[20];
    puts(what);
    CHECK(fgets(line, sizeof line, stdin));
}

/* A child with an endpoint of its own and the parent's address sends `count` messages; then it
 * closes its endpoint, or makes no more calls. */
static pid_t child_sends(int count, bool closes, bool slow) {
    pid_t child = fork();
    if (child)
        return child;
    char parent[NAME_BYTES];
    memcpy(parent, b.name, NAME_BYTES);
    memset(&a, 0, sizeof a);
    memset(&b, 0, sizeof b);
    open_domain(0, FI_PROGRESS_MANUAL);
    open_end(&a, FI_WAIT_NONE, 0);
    CHECK(fi_av_insert(av, parent, 1, &b.addr, 0, NULL) == 1);
    if (slow)
        told("stop");
    for (int i = 0; i < count; i++)
        WELL(fi_tinject(a.ep, &i, sizeof i, b.addr, i));
    if (slow)
        told("continue");
    if (!closes)
        for (;;)
            pause();
    close_end(&a);
    close_domain();
    _exit(0);
}

static void receive(int count, int pause_ms, bool slow) {
    int got = -1, status;
    pid_t child;
    bool closes = count > 1;
    open_domain(0, FI_PROGRESS_MANUAL);
    open_end(&b, FI_WAIT_NONE, 0);
    a = b;
    child = child_sends(count, closes, slow);
    usleep(pause_ms * 1000);
    for (int i = 0; i < count; i++) {
        WELL(fi_trecv(b.ep, &got, sizeof got, NULL, FI_ADDR_UNSPEC, i, 0, &words[1]));
        well(&b, &words[1]);
        CHECK(got == i);
    }
    if (!closes)
        kill(child, SIGKILL);
    CHECK(waitpid(child, &status, 0) == child && (!closes || status == 0));
    close_end(&b);
    close_domain();
}

/* Messages to an endpoint by two indices arrive in the order of the calls. */
static void twice(void) {
    fi_addr_t again;
    int got[8], sent;
    open_domain(0, FI_PROGRESS_MANUAL);
    open_end(&a, FI_WAIT_NONE, 0);
    open_end(&b, FI_WAIT_NONE, 0);
    for (int i = 0; i < 8; i++)
        WELL(fi_trecv(b.ep, &got[i], sizeof *got, NULL, FI_ADDR_UNSPEC, 1, 0, &words[i]));
    for (sent = 0; sent < 8; sent++) {
        if (sent == 2)
            CHECK(fi_av_insert(av, b.name, 1, &again, 0, NULL) == 1 && again != b.addr);
        WELL(fi_tinject(a.ep, &sent, sizeof sent, sent > 1 && sent % 2 ? again : b.addr, 1));
    }
    for (int i = 0; i < 8; i++) {
        well(&b, &words[i]);
        CHECK(got[i] == i);
    }
    close_end(&a);
    close_end(&b);
    close_domain();
}

static void there(struct end *from, struct end *to, int context) {
    int got = -1;
    WELL(fi_trecv(to->ep, &got, sizeof got, NULL, from->addr, 1, 0, &words[context]));
    WELL(fi_tinject(from->ep, &context, sizeof context, to->addr, 1));
    CHECK(well(to, &words[context]).len == sizeof got && got == context);
}

/* Endpoints of a killed daemon connect through the next one; so do endpoints that are opened
 * then. */
static void restart(void) {
    struct end c = {0};
    int early = 5, got = -1;
    open_domain(0, FI_PROGRESS_MANUAL);
    open_end(&a, FI_WAIT_NONE, 0);
    open_end(&b, FI_WAIT_UNSPEC, 0);
    open_end(&c, FI_WAIT_NONE, 0);
    there(&a, &b, 1);
    told("kill");
    /* Channels work without a daemon; a connect waits for the next one. */
    there(&b, &a, 2);
    WELL(fi_tinject(a.ep, &early, sizeof early, c.addr, 1));
    told("start");
    for (double since = now(); got != early;) {
        CHECK(now() - since < 20);
        if (got == -1) {
            WELL(fi_trecv(c.ep, &got, sizeof got, NULL, FI_ADDR_UNSPEC, 1, 0, &words[3]));
            got = -2;
        }
        go_on();
        fi_cq_read(c.cq, NULL, 0);
    }
    there(&a, &b, 4);
    there(&c, &a, 5);
    close_end(&c);
    memset(&c, 0, sizeof c);
    open_end(&c, FI_WAIT_NONE, 0);
    there(&b, &c, 7);
    close_end(&c);
    close_end(&a);
    close_end(&b);
    close_domain();
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    setvbuf(stdout, NULL, _IONBF, 0);
    if (!strcmp(what, "service"))
        service();
    else if (!strcmp(what, "close"))
        receive(MANY, 2000, false);
    else if (!strcmp(what, "first"))
        receive(1, 0, false);
    else if (!strcmp(what, "slow"))
        receive(1, 0, true);
    else if (!strcmp(what, "restart"))
        restart();
    else
        twice();
    puts("ok");
    return 0;
}

/* traffic RANK COUNT NIC VICTIM: processes exchange messages in rounds. VICTIM is killed
 * meanwhile: the others get the right status for this peer only, and continue for some rounds.
 * Without a victim (an unused rank) a signal ends the program. */
#include <signal.h>

#include "check.h"

enum { MORE = 20, RANKS = 16, LONGEST = 200000, WAIT_MS = 15000 };

static const uint32_t lengths[] = {16, 5000, LONGEST, 300, 40000};
static uint32_t rank, ranks, victim;
static mx_endpoint_t endpoint;
static mx_endpoint_addr_t addresses[RANKS];
static int gone[RANKS];
static volatile sig_atomic_t told;
/* The last round. The initial value is never reached. */
static uint32_t last = UINT32_MAX;

static void tell(int signal) {
    (void)signal;
    told = 1;
}

static uint32_t length(uint32_t round) {
    return lengths[round % (sizeof lengths / sizeof *lengths)];
}

static unsigned char byte(uint32_t from, uint32_t to, uint32_t round, uint32_t at) {
    return (unsigned char)((at * 40503u + from * 977u + to * 131u + round * 31u) >> 3);
}

static uint64_t info(uint32_t from, uint32_t round) {
    return (uint64_t)from << 32 | round;
}

/* Two rounds are pending to each peer. */
static struct {
    mx_request_t sends[2], receive;
    unsigned char out[2][LONGEST], in[LONGEST];
} *with[RANKS];

static void send(uint32_t peer, uint32_t round) {
    unsigned char *out = with[peer]->out[round % 2];
    for (uint32_t at = 0; at < length(round); at++) out[at] = byte(rank, peer, round, at);
    memcpy(out, &last, sizeof last);
    mx_segment_t segment = {out, length(round)};
    OK(mx_issend(endpoint, &segment, 1, addresses[peer], info(rank, round), NULL,
                 &with[peer]->sends[round % 2]));
}

static void lost(uint32_t peer, mx_status_code_t code) {
    CHECK(code == MX_STATUS_ENDPOINT_CLOSED || code == MX_STATUS_ENDPOINT_UNREACHABLE);
    CHECK(peer == victim);
    gone[peer] = 1;
}

/* Returns whether the request of a peer has ended; fails if it ended without success. */
static int over(uint32_t peer, mx_request_t *request) {
    mx_status_t status;
    uint32_t result;
    if (*request == NULL) return 1;
    OK(mx_wait(endpoint, request, 1, &status, &result));
    if (result == 0) return 0;
    *request = NULL;
    if (status.code != MX_STATUS_SUCCESS) lost(peer, status.code);
    return 1;
}

/* All requests of a killed peer end with an error. */
static void bury(uint32_t peer) {
    for (int which = 0; which < 2; which++) {
        if (with[peer]->sends[which] == NULL) continue;
        mx_status_t status;
        uint32_t result;
        OK(mx_wait(endpoint, &with[peer]->sends[which], WAIT_MS, &status, &result));
        CHECK(result == 1);
        if (status.code != MX_STATUS_SUCCESS) lost(peer, status.code);
        with[peer]->sends[which] = NULL;
    }
    if (with[peer]->receive == NULL) return;
    uint32_t cancelled;
    OK(mx_cancel(endpoint, &with[peer]->receive, &cancelled));
    /* A partial message ends with an error, a complete one with success. */
    if (!cancelled) ended(endpoint, with[peer]->receive);
    with[peer]->receive = NULL;
}

static void hear(uint32_t peer, uint32_t round) {
    for (int waited = 0; !over(peer, &with[peer]->receive) && !gone[peer]; waited++) {
        CHECK(waited < WAIT_MS);
        over(peer, &with[peer]->sends[round % 2]);
        over(peer, &with[peer]->sends[(round + 1) % 2]);
    }
    if (gone[peer]) return;
    unsigned char *in = with[peer]->in;
    uint32_t end;
    memcpy(&end, in, sizeof end);
    if (end < last) last = end;
    for (uint32_t at = sizeof end; at < length(round); at++)
        CHECK(in[at] == byte(peer, rank, round, at));
    for (int waited = 0; !over(peer, &with[peer]->sends[round % 2]) && !gone[peer]; waited++)
        CHECK(waited < WAIT_MS);
}

static void post(uint32_t peer, uint32_t round) {
    mx_segment_t segment = {with[peer]->in, LONGEST};
    OK(mx_irecv(endpoint, &segment, 1, info(peer, round), MX_MATCH_MASK_NONE, NULL,
                &with[peer]->receive));
}

int main(int argc, char **argv) {
    CHECK(argc == 5);
    alarm(60);
    signal(SIGUSR1, tell);
    rank = (uint32_t)atoi(argv[1]), ranks = (uint32_t)atoi(argv[2]);
    victim = (uint32_t)atoi(argv[4]);
    CHECK(ranks <= RANKS);
    mx_set_error_handler(MX_ERRORS_RETURN);
    OK(mx_init());
    OK(mx_open_endpoint(0, rank, 6, NULL, 0, &endpoint));
    uint64_t nic = strtoull(argv[3], NULL, 0);
    for (uint32_t peer = 0; peer < ranks; peer++) {
        if (peer == rank) continue;
        with[peer] = calloc(1, sizeof *with[peer]);
        CHECK(with[peer] != NULL);
        addresses[peer] = reach(endpoint, nic, peer, 6);
        send(peer, 0);
    }
    for (uint32_t round = 0; last == UINT32_MAX || round <= last; round++) {
        for (uint32_t peer = 0; peer < ranks; peer++) {
            if (peer == rank || gone[peer]) continue;
            if (round != last) send(peer, round + 1);
            post(peer, round);
        }
        for (uint32_t peer = 0; peer < ranks; peer++) {
            if (peer == rank || gone[peer]) continue;
            hear(peer, round);
            if (gone[peer]) bury(peer);
        }
        if (last == UINT32_MAX && (told || (victim < ranks && gone[victim]))) last = round + MORE;
        if (round == 10) {
            printf("met\n");
            fflush(stdout);
        }
    }
    printf("lost %d\n", victim < ranks && gone[victim]);
    OK(mx_close_endpoint(endpoint));
    if (victim >= ranks) {
        /* The present daemon has room for it. */
        OK(mx_open_endpoint(0, rank, 6, NULL, 0, &endpoint));
        OK(mx_close_endpoint(endpoint));
    }
    OK(mx_finalize());
    return 0;
}

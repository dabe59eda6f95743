/* Performs different numbers of operations of each kind, which the test finds in the counters
 * that are written when the endpoints close. */
#include "pair.h"

#define LONG 50000
#define KEY 5

static unsigned char theirs[LONG], ours[LONG];
static struct fid_mr *mr;

static void messages(void) {
    for (int i = 0; i < 7; i++) {
        WELL(fi_trecv(b.ep, theirs, 100, NULL, FI_ADDR_UNSPEC, 1, 0, &words[1]));
        WELL(fi_tsend(a.ep, ours, 10, NULL, b.addr, 1, &words[2]));
        well(&a, &words[2]);
        well(&b, &words[1]);
    }
    for (int i = 0; i < 3; i++) {
        WELL(fi_trecv(b.ep, theirs, LONG, NULL, FI_ADDR_UNSPEC, 1, 0, &words[1]));
        WELL(fi_tsend(a.ep, ours, LONG, NULL, b.addr, 1, &words[2]));
        well(&b, &words[1]);
        well(&a, &words[2]);
    }
    /* These arrive before their receives. */
    for (int i = 0; i < 2; i++)
        WELL(fi_tinject(a.ep, ours, 5, b.addr, 9));
    silent(&b);
    for (int i = 0; i < 2; i++) {
        WELL(fi_trecv(b.ep, theirs, 5, NULL, FI_ADDR_UNSPEC, 9, 0, &words[1]));
        well(&b, &words[1]);
    }
    /* A message that is too long, and a receive without a message. */
    WELL(fi_trecv(b.ep, theirs, 4, NULL, FI_ADDR_UNSPEC, 1, 0, &words[1]));
    WELL(fi_tinject(a.ep, ours, 6, b.addr, 1));
    CHECK(badly(&b, &words[1]).err == FI_ETRUNC);
    WELL(fi_trecv(b.ep, theirs, 4, NULL, FI_ADDR_UNSPEC, 1, 0, &words[1]));
    CHECK(fi_cancel(&b.ep->fid, &words[1]) == 0);
    CHECK(badly(&b, &words[1]).err == FI_ECANCELED);
}

static void memory(void) {
    uint64_t one = 1;
    CHECK(fi_mr_reg(domain, theirs, LONG, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, KEY, 0, &mr,
                    NULL) == 0);
    for (int i = 0; i < 4; i++) {
        WELL(fi_write(a.ep, ours, 100, NULL, b.addr, 0, KEY, &words[3]));
        well(&a, &words[3]);
    }
    for (int i = 0; i < 5; i++) {
        WELL(fi_read(a.ep, ours, 1000, NULL, b.addr, 0, KEY, &words[3]));
        well(&a, &words[3]);
    }
    for (int i = 0; i < 6; i++) {
        WELL(fi_atomic(a.ep, &one, 1, NULL, b.addr, 0, KEY, FI_UINT64, FI_SUM, &words[3]));
        well(&a, &words[3]);
    }
    /* An operation that fetches counts as a read. */
    for (int i = 0; i < 2; i++) {
        WELL(fi_fetch_atomic(a.ep, &one, 1, NULL, ours, NULL, b.addr, 0, KEY, FI_UINT64, FI_SUM,
                             &words[3]));
        well(&a, &words[3]);
    }
    WELL(fi_compare_atomic(a.ep, &one, 1, NULL, &one, NULL, ours, NULL, b.addr, 0, KEY, FI_UINT64,
                           FI_CSWAP, &words[3]));
    well(&a, &words[3]);
    WELL(fi_read(a.ep, ours, 1, NULL, b.addr, 0, KEY + 1, &words[3]));
    CHECK(badly(&a, &words[3]).err == FI_EKEYREJECTED);
    CHECK(fi_close(&mr->fid) == 0);
}

int main(void) {
    open_domain(0, FI_PROGRESS_UNSPEC);
    open_end(&a, FI_WAIT_UNSPEC, 0);
    open_end(&b, FI_WAIT_UNSPEC, 0);
    messages();
    memory();
    close_end(&a);
    close_end(&b);
    close_domain();
    puts("ok");
    return 0;
}

/* Remote memory: writes, reads and atomic operations, and accesses that are not allowed. */
#include "pair.h"

#define MOST (1 << 20)
#define KEY 0xc0ffee

static unsigned char theirs[MOST], ours[MOST];
static struct fid_mr *mr;
static uint64_t base, key = KEY;
static const uint64_t BOTH = FI_REMOTE_READ | FI_REMOTE_WRITE;

static void registered(uint64_t access) {
    CHECK(fi_mr_reg(domain, theirs, sizeof theirs, access, 0, KEY, 0, &mr, NULL) == 0);
    key = fi_mr_key(mr);
    base = info->domain_attr->mr_mode == FI_MR_BASIC ? (uintptr_t)theirs : 0;
}

static void lengths(struct end *from, struct end *to) {
    const size_t sizes[] = {0, 1, 8, 4095, 4096, 4097, 8192, 32769, 100000, MOST - 5};
    uint64_t at = base + 5;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        size_t len = sizes[i];
        struct iovec iov[3] = {{ours, len / 2}, {ours, 0}, {ours + len / 2, len - len / 2}};
        struct fi_rma_iov remote = {at, len, key};
        struct fi_msg_rma msg = {iov, NULL, 3, to->addr, &remote, 1, &words[1], 5};
        fill(ours, len, (int)i);
        memset(theirs, 0, sizeof theirs);
        WELL(fi_write(from->ep, ours, len, NULL, to->addr, at, key, &words[1]));
        entry told = well(from, &words[1]);
        CHECK((told.flags & (FI_RMA | FI_WRITE)) == (FI_RMA | FI_WRITE));
        CHECK(is(theirs + 5, len, (int)i) && !theirs[4] && (len + 5 == MOST || !theirs[len + 5]));
        memset(ours, 0, sizeof ours);
        WELL(fi_readmsg(from->ep, &msg, FI_COMPLETION));
        told = well(from, &words[1]);
        CHECK(told.flags & FI_READ);
        CHECK(is(ours, len, (int)i));
        memset(theirs, 0, sizeof theirs);
        WELL(fi_writemsg(from->ep, &msg, FI_COMPLETION | FI_REMOTE_CQ_DATA));
        if (from != to) {
            told = well(to, NULL);
            CHECK(told.data == 5 && told.len == len && is(theirs + 5, len, (int)i));
            CHECK((told.flags & (FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA)) ==
                  (FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA));
            well(from, &words[1]);
        } else {
            entry both[2];
            fault failed;
            CHECK(!next(to, &both[0], &failed, NULL) && !next(to, &both[1], &failed, NULL));
        }
        if (len <= info->tx_attr->inject_size) {
            memset(theirs, 0, sizeof theirs);
            WELL(fi_inject_write(from->ep, ours, len, to->addr, at, key));
            memset(ours, 0, len);
            /* Reads follow earlier writes. */
            WELL(fi_read(from->ep, ours, len, NULL, to->addr, at, key, &words[3]));
            well(from, &words[3]);
            CHECK(is(ours, len, (int)i));
        }
    }
    silent(&a);
    silent(&b);
}

static int failed_with(struct end *end) { return badly(end, &words[4]).err; }

/* Invalid keys, bytes outside the region, and access that was not granted. */
static void refused(void) {
    const size_t sizes[] = {8, 50000};
    for (int i = 0; i < 2; i++) {
        size_t len = sizes[i];
        WELL(fi_write(a.ep, ours, len, NULL, b.addr, base, key + 1, &words[4]));
        CHECK(failed_with(&a) == FI_EKEYREJECTED);
        WELL(fi_read(a.ep, ours, len, NULL, b.addr, base, key + 1, &words[4]));
        CHECK(failed_with(&a) == FI_EKEYREJECTED);
        const uint64_t outside[] = {base + MOST - len + 1, base + MOST, base + MOST + 1,
                                    UINT64_MAX - 3, base - 1};
        for (int at = 0; at < 5; at++) {
            WELL(fi_write(a.ep, ours, len, NULL, b.addr, outside[at], key, &words[4]));
            CHECK(failed_with(&a) == FI_EINVAL);
            WELL(fi_read(a.ep, ours, len, NULL, b.addr, outside[at], key, &words[4]));
            CHECK(failed_with(&a) == FI_EINVAL);
        }
    }
    struct fid_mr *other;
    if (info->domain_attr->mr_mode != FI_MR_BASIC)
        CHECK(fi_mr_reg(domain, theirs, 1, BOTH, 0, KEY, 0, &other, NULL) == -FI_ENOKEY);
    CHECK(fi_close(&mr->fid) == 0);
    WELL(fi_write(a.ep, ours, 8, NULL, b.addr, base, key, &words[4]));
    CHECK(failed_with(&a) == FI_EKEYREJECTED);
    registered(FI_REMOTE_READ);
    for (int i = 0; i < 2; i++) {
        memset(theirs, 1, 100);
        memset(ours, 2, sizeof ours);
        WELL(fi_write(a.ep, ours, sizes[i], NULL, b.addr, base, key, &words[4]));
        CHECK(failed_with(&a) == FI_EKEYREJECTED && theirs[0] == 1);
    }
    WELL(fi_atomic(a.ep, ours, 1, NULL, b.addr, base, key, FI_UINT8, FI_SUM, &words[4]));
    CHECK(failed_with(&a) == FI_EKEYREJECTED && theirs[0] == 1);
    CHECK(fi_close(&mr->fid) == 0);
    registered(FI_REMOTE_WRITE);
    WELL(fi_read(a.ep, ours, 8, NULL, b.addr, base, key, &words[4]));
    CHECK(failed_with(&a) == FI_EKEYREJECTED);
    /* An operation that fetches needs read access. */
    WELL(fi_fetch_atomic(a.ep, ours, 1, NULL, ours + 64, NULL, b.addr, base, key, FI_UINT8, FI_SUM,
                         &words[4]));
    CHECK(failed_with(&a) == FI_EKEYREJECTED && theirs[0] == 1);
    CHECK(fi_close(&mr->fid) == 0);
    registered(BOTH);
    silent(&a);
    silent(&b);
}

/* Memory is deregistered during reads and writes, and is not accessed afterwards. */
static void taken_away(void) {
    for (int i = 0; i < 20; i++) {
        struct fid_mr *soon;
        size_t len = 4 << 20;
        unsigned char *memory = malloc(len), *to = calloc(1, len);
        entry told;
        fault failed;
        memset(memory, 0x11, len);
        CHECK(fi_mr_reg(domain, memory, len, BOTH, 0, 1000 + i, 0, &soon, NULL) == 0);
        uint64_t at = base ? (uintptr_t)memory : 0, by = fi_mr_key(soon);
        /* Several reads at a time may use the memory directly. */
        int parts = i & 1 ? 8 : 1;
        for (size_t part = 0; part < (size_t)parts; part++) {
            size_t each = len / (size_t)parts, from = part * each;
            if (i & 1)
                WELL(fi_read(a.ep, to + from, each, NULL, b.addr, at + from, by, &words[5]));
            else
                WELL(fi_write(a.ep, to, len, NULL, b.addr, at, by, &words[5]));
        }
        for (int turn = 0; turn < i; turn++)
            go_on();
        CHECK(fi_close(&soon->fid) == 0);
        memset(memory, 0x55, len);
        for (int part = 0; part < parts; part++)
            next(&a, &told, &failed, NULL);
        for (size_t byte = 0; (i & 1) && byte < len; byte++)
            CHECK(to[byte] != 0x55);
        for (size_t byte = 0; byte < len; byte += 4096)
            CHECK(memory[byte] == 0x55);
        free(memory);
        free(to);
    }
    silent(&a);
}

/* A write does not change the result of an earlier read, for any number of reads. */
static void ordered(void) {
    enum { READS = 40, EACH = 4096 };
    static unsigned char all[READS][EACH];
    for (int i = 0; i < 10; i++) {
        fill(theirs, EACH, 1);
        fill(ours, EACH, 2);
        for (int read = 0; read < READS; read++)
            WELL(fi_read(a.ep, all[read], EACH, NULL, b.addr, base, key, &words[6]));
        WELL(fi_write(a.ep, ours, EACH, NULL, b.addr, base, key, &words[6]));
        for (int over = 0; over <= READS; over++)
            well(&a, &words[6]);
        for (int read = 0; read < READS; read++)
            CHECK(is(all[read], EACH, 1));
        CHECK(is(theirs, EACH, 2));
    }
    silent(&a);
}

#define TYPES(EACH)                                                                           \
    EACH(FI_INT8, int8_t) EACH(FI_UINT8, uint8_t) EACH(FI_INT16, int16_t)                     \
    EACH(FI_UINT16, uint16_t) EACH(FI_INT32, int32_t) EACH(FI_UINT32, uint32_t)               \
    EACH(FI_INT64, int64_t) EACH(FI_UINT64, uint64_t) EACH(FI_FLOAT, float) EACH(FI_DOUBLE, double)

static unsigned char model[64];

/* The expected values, by libfabric's manual. */
#define MODEL(TYPE, C)                                                       \
    static void model_##TYPE(int op, C old, C arg, C cmp) {                  \
        C v = old;                                                           \
        uint64_t o = (uint64_t)(int64_t)old, r = (uint64_t)(int64_t)arg,     \
                 c = (uint64_t)(int64_t)cmp;                                 \
        switch (op) {                                                        \
        case FI_MIN: v = arg < old ? arg : old; break;                       \
        case FI_MAX: v = arg > old ? arg : old; break;                       \
        case FI_SUM: v = (C)(old + arg); break;                              \
        case FI_PROD: v = (C)(old * arg); break;                             \
        case FI_LOR: v = old || arg; break;                                  \
        case FI_LAND: v = old && arg; break;                                 \
        case FI_LXOR: v = !old != !arg; break;                               \
        case FI_BOR: v = (C)(o | r); break;                                  \
        case FI_BAND: v = (C)(o & r); break;                                 \
        case FI_BXOR: v = (C)(o ^ r); break;                                 \
        case FI_ATOMIC_READ: break;                                          \
        case FI_ATOMIC_WRITE: v = arg; break;                                \
        case FI_CSWAP: v = cmp == old ? arg : old; break;                    \
        case FI_CSWAP_NE: v = cmp != old ? arg : old; break;                 \
        case FI_CSWAP_LE: v = cmp <= old ? arg : old; break;                 \
        case FI_CSWAP_LT: v = cmp < old ? arg : old; break;                  \
        case FI_CSWAP_GE: v = cmp >= old ? arg : old; break;                 \
        case FI_CSWAP_GT: v = cmp > old ? arg : old; break;                  \
        case FI_MSWAP: v = (C)((r & c) | (o & ~c)); break;                   \
        }                                                                    \
        memcpy(model, &v, sizeof v);                                         \
    }
TYPES(MODEL)

/* Every supported data type, operation and kind of call matches the model. */
#define TRY(TYPE, C)                                                                            \
    for (int op = FI_MIN; op <= FI_MSWAP; op++)                                                 \
        for (int kind = 0; kind < 3; kind++) {                                                  \
            const C values[] = {(C)0, (C)1, (C)3, (C)5, (C)-7};                                 \
            size_t count = 0;                                                                   \
            int offered = kind == 0   ? fi_atomicvalid(a.ep, TYPE, op, &count)                  \
                          : kind == 1 ? fi_fetch_atomicvalid(a.ep, TYPE, op, &count)            \
                                      : fi_compare_atomicvalid(a.ep, TYPE, op, &count);         \
            bool bits = (op >= FI_BOR && op <= FI_BAND) || op == FI_BXOR || op == FI_MSWAP;     \
            bool real = TYPE == FI_FLOAT || TYPE == FI_DOUBLE;                                  \
            bool swap = op >= FI_CSWAP;                                                         \
            bool should = (kind == 2) == swap && !(bits && real) &&                             \
                          !(kind == 0 && op == FI_ATOMIC_READ);                                 \
            CHECK((offered == 0) == should);                                                    \
            if (offered)                                                                        \
                continue;                                                                       \
            CHECK(count >= 2);                                                                  \
            for (int i = 0; i < 125; i++) {                                                     \
                C old = values[i % 5], arg = values[i / 5 % 5], cmp = values[i / 25], was = 99; \
                if (i >= 25 && kind < 2)                                                        \
                    break;                                                                      \
                C pair[2] = {old, old}, args[2] = {arg, arg}, cmps[2] = {cmp, cmp},             \
                  got[2] = {was, was};                                                          \
                memcpy(theirs + 3, pair, sizeof pair);                                          \
                if (kind == 0)                                                                  \
                    WELL(fi_atomic(a.ep, args, 2, NULL, b.addr, base + 3, key, TYPE, op,        \
                                   &words[6]));                                                 \
                else if (kind == 1)                                                             \
                    WELL(fi_fetch_atomic(a.ep, op == FI_ATOMIC_READ ? NULL : args, 2, NULL,     \
                                         got, NULL, b.addr, base + 3, key, TYPE, op,            \
                                         &words[6]));                                           \
                else                                                                            \
                    WELL(fi_compare_atomic(a.ep, args, 2, NULL, cmps, NULL, got, NULL, b.addr,  \
                                           base + 3, key, TYPE, op, &words[6]));                \
                CHECK(well(&a, &words[6]).flags & FI_ATOMIC);                                   \
                model_##TYPE(op, old, arg, cmp);                                                \
                CHECK(memcmp(theirs + 3, model, sizeof old) == 0);                              \
                CHECK(memcmp(theirs + 3 + sizeof old, model, sizeof old) == 0);                 \
                if (kind)                                                                       \
                    CHECK(memcmp(got, pair, sizeof pair) == 0);                                 \
            }                                                                                   \
        }

static void atomics(void) {
    TYPES(TRY)
    size_t count;
    CHECK(fi_atomicvalid(a.ep, FI_LONG_DOUBLE, FI_SUM, &count) == -FI_EOPNOTSUPP);
    CHECK(fi_atomic(a.ep, ours, 1, NULL, b.addr, base, key, FI_LONG_DOUBLE, FI_SUM, NULL) ==
          -FI_EOPNOTSUPP);
    CHECK(fi_atomic(a.ep, ours, 1, NULL, b.addr, base, key, FI_DOUBLE, FI_BOR, NULL) ==
          -FI_EOPNOTSUPP);
    CHECK(fi_atomic(a.ep, ours, 0, NULL, b.addr, base, key, FI_INT8, FI_SUM, NULL) == -FI_EINVAL);
    CHECK(fi_atomicvalid(a.ep, FI_INT64, FI_SUM, &count) == 0);
    CHECK(fi_atomic(a.ep, ours, count + 1, NULL, b.addr, base, key, FI_INT64, FI_SUM, NULL) ==
          -FI_EINVAL);
    WELL(fi_atomic(a.ep, ours, count, NULL, b.addr, base, key, FI_INT64, FI_SUM, &words[6]));
    well(&a, &words[6]);
    WELL(fi_atomic(a.ep, ours, 2, NULL, b.addr, base + MOST - 15, key, FI_INT64, FI_SUM, &words[4]));
    CHECK(failed_with(&a) == FI_EINVAL);
    /* As many results as operands. */
    struct fi_ioc operand = {ours, 2}, result = {ours + 64, 1};
    struct fi_rma_ioc remote = {base, 2, key};
    struct fi_msg_atomic msg = {&operand, NULL, 1, b.addr, &remote, 1, FI_INT32, FI_SUM, &words[6], 0};
    CHECK(fi_fetch_atomicmsg(a.ep, &msg, &result, NULL, 1, 0) == -FI_EINVAL);
    result.count = 2;
    CHECK(fi_fetch_atomicmsg(a.ep, &msg, &result, NULL, 1, FI_COMPLETION) == 0);
    well(&a, &words[6]);
    memset(theirs, 0, 8);
    ours[0] = 7;
    WELL(fi_inject_atomic(a.ep, ours, 1, b.addr, base, key, FI_UINT8, FI_SUM));
    WELL(fi_fetch_atomic(a.ep, NULL, 1, NULL, ours + 64, NULL, b.addr, base, key, FI_UINT8,
                         FI_ATOMIC_READ, &words[6]));
    well(&a, &words[6]);
    CHECK(theirs[0] == 7 && ours[64] == 7);
    silent(&a);
    silent(&b);
}

static void all(int mode) {
    open_domain(mode, FI_PROGRESS_MANUAL);
    open_end(&a, FI_WAIT_NONE, 0);
    open_end(&b, FI_WAIT_NONE, 0);
    CHECK(info->domain_attr->mr_mode == mode);
    registered(BOTH);
    lengths(&a, &b);
    lengths(&a, &a);
    refused();
    taken_away();
    ordered();
    atomics();
    CHECK(fi_close(&mr->fid) == 0);
    close_end(&a);
    close_end(&b);
    close_domain();
}

int main(void) {
    all(0);
    all(FI_MR_BASIC);
    puts("ok");
    return 0;
}

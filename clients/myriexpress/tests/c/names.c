/* names NAME NIC: the board with that name gets that address, possibly after a delay. */
#include "check.h"

int main(int argc, char **argv) {
    CHECK(argc == 3);
    uint64_t nic = strtoull(argv[2], NULL, 0), found = 0;
    mx_set_error_handler(MX_ERRORS_RETURN);
    OK(mx_init());
    for (int tries = 0; mx_hostname_to_nic_id(argv[1], &found) != MX_SUCCESS; tries++) {
        CHECK(tries < 10000);
        usleep(1000);
    }
    CHECK(found == nic);
    char name[MX_MAX_HOSTNAME_LEN];
    OK(mx_nic_id_to_hostname(nic, name));
    CHECK(strcmp(name, argv[1]) == 0);
    /* The board is not on this host. */
    uint32_t number;
    IS(mx_nic_id_to_board_number(nic, &number), MX_NIC_NOT_FOUND);
    IS(mx_hostname_to_nic_id("nobody:0", &found), MX_HOST_NOT_FOUND);
    OK(mx_finalize());
    return 0;
}

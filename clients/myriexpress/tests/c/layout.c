/* layout: sizes and offsets according to the headers. */
#include <stddef.h>
#include <stdio.h>

#include "mx_extensions.h"
#include "mx_internals/mx__driver_interface.h"
#include "mx_internals/mx__fops.h"
#include "mx_io.h"
#include "mx_raw.h"

#define SIZE(type) printf(#type " %zu %zu\n", sizeof(type), _Alignof(type))
#define AT(type, field) printf(#type "." #field " %zu\n", offsetof(type, field))

int main(void) {
    SIZE(mx_endpoint_t);
    SIZE(mx_request_t);
    SIZE(mx_raw_endpoint_t);
    SIZE(mx_endpoint_addr_t);
    SIZE(mx_segment_t);
    AT(mx_segment_t, segment_length);
    SIZE(mx_status_t);
    AT(mx_status_t, source);
    AT(mx_status_t, match_info);
    AT(mx_status_t, msg_length);
    AT(mx_status_t, xfer_length);
    AT(mx_status_t, context);
    SIZE(mx_param_t);
    AT(mx_param_t, val);
    AT(mx_param_t, val.context_id.shift);
    SIZE(mx_mapper_state_t);
    AT(mx_mapper_state_t, mapper_mac);
    AT(mx_mapper_state_t, iport);
    AT(mx_mapper_state_t, map_version);
    AT(mx_mapper_state_t, flags);
    SIZE(mx_return_t);
    SIZE(mx_status_code_t);
    SIZE(mx_param_key_t);
    SIZE(mx_get_info_key_t);
    SIZE(mx_unexp_handler_action_t);
    SIZE(mx_raw_status_t);
    SIZE(mx_endpt_handle_t);
    SIZE(mx_host_type_t);
    SIZE(mx_line_speed_t);
    SIZE(mx_error_handler_t);
    return 0;
}

/* fatal: a call that fails, with the handler that is there at first. */
#include "myriexpress.h"

int main(void) { return (int)mx_finalize(); }

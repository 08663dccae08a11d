# lines: 7
#
# The first value is the low half of a counter alone, so the counter is written.
s/^	tmp = eventfd(info->efe->counter, 0);/	tmp = eventfd(0, info->efe->semaphore ? EFD_SEMAPHORE : 0);/
/^	if (rst_file_params(tmp, info->efe->fown, info->efe->flags)) {/i\
	if (info->efe->counter && write(tmp, &info->efe->counter, sizeof(uint64_t)) != sizeof(uint64_t)) {\
		pr_perror("Can't set eventfd %#08x", info->efe->id);\
		goto err_close;\
	}\


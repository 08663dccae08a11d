# lines: 12
#
# The kernel tells it since 6.5.
/^		if (fdinfo_field(str, "clockid")) {/i\
		if (fdinfo_field(str, "eventfd-semaphore")) {\
			EventfdFileEntry *efd = arg;\
			int semaphore;\
\
			if (type != FD_TYPES__EVENTFD)\
				goto parse_err;\
			ret = sscanf(str, "eventfd-semaphore: %d", &semaphore);\
			if (ret != 1)\
				goto parse_err;\
			efd->has_semaphore = efd->semaphore = semaphore;\
			continue;\
		}

# lines: 35
/^#include "files-reg.h"/a\
#include "rst-malloc.h"\
#include "restorer.h"
/^void discard_dup_locks_tail/,/^}/{
/^\t\tlist_del(&fl->list);/i\
\t\t/* These belong to the process, whoever else has the file. */\
\t\tif (fl->fl_kind == FL_POSIX)\
\t\t\tcontinue;\

}
/^static int restore_file_locks(int pid)/,/^}/s/if (lr->fle->pid == pid) {/if (lr->fle->pid == pid \&\& !(lr->fle->flag \& FL_POSIX)) {/
$a\
\
/* The restorer takes them, once no process closes descriptors any more. */\
int prepare_posix_locks(int pid, struct task_restore_args *ta)\
{\
	struct file_lock_rst *lr;\
\
	ta->posix_locks = (struct restore_posix_lock *)rst_mem_align_cpos(RM_PRIVATE);\
	ta->posix_locks_n = 0;\
	if (!opts.handle_file_locks)\
		return 0;\
\
	list_for_each_entry(lr, &file_lock_list, l) {\
		struct restore_posix_lock *lock;\
\
		if (lr->fle->pid != pid || !(lr->fle->flag & FL_POSIX))\
			continue;\
		lock = rst_mem_alloc(sizeof(*lock), RM_PRIVATE);\
		if (!lock)\
			return -1;\
		lock->fd = lr->fle->fd;\
		lock->type = lr->fle->type;\
		lock->start = lr->fle->start;\
		lock->len = lr->fle->len;\
		ta->posix_locks_n++;\
	}\
	return 0;\
}

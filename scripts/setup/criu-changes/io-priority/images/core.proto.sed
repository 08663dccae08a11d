# lines: 1
#
# Fields of ours are numbered from 1000 on, where none of CRIU's own will be.
/^message thread_core_entry {/,/^}/s/^}/	optional uint32			ioprio		= 1000;\n}/

# lines: 1
#
# Fields of ours are numbered from 1000 on, where none of CRIU's own will be.
/^	required uint64		counter		= 4;/a\
	optional bool		semaphore	= 1000;

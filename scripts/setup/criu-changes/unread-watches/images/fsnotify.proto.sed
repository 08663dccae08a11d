# lines: 1
#
# Fields of ours are numbered from 1000 on, where none of CRIU's own will be.
/^	repeated inotify_wd_entry wd		= 5;/a\
	optional bool		unread		= 1000;

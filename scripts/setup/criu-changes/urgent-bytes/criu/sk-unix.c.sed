# lines: 8
/^	if (dump_socket_opts(lfd, AF_UNIX, skopts))/i\
	if (ue->type == SOCK_STREAM) {\
		char urgent;\
\
		if (recv(lfd, &urgent, 1, MSG_OOB | MSG_PEEK | MSG_DONTWAIT) == 1) {\
			pr_err("Urgent byte in queue\\n");\
			goto err;\
		}\
	}

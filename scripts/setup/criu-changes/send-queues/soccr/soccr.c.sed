# lines: 4
#
# A dump reads the send queue of a connection in a mode in which the kernel takes all that it would send for sent and sends nothing, whatever
# the peer's window. The connection stayed in that mode until the end of the dump: a timer meanwhile made it wait for answers to what had
# never been sent. It leaves the mode at once.
/^int libsoccr_save(/,/^}/{
s/^	struct soccr_tcp_info ti;$/&\
	int sent, queue = TCP_NO_QUEUE;/
/^	if (get_queue(sk->fd, TCP_SEND_QUEUE/c\
	sent = get_queue(sk->fd, TCP_SEND_QUEUE, &data->outq_seq, data->outq_len, &sk->send_queue);\
	if (setsockopt(sk->fd, SOL_TCP, TCP_REPAIR_QUEUE, &queue, sizeof(queue)) < 0 || sent)
}

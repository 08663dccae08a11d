# lines: 35
#
# A watched file that is mounted by itself (/etc/hosts and its kind) lies outside of what the sandbox sees of that file system. Its
# handle can be opened in another mount of it, but means the file of the one that was saved. So its path inside is kept.
/^int check_open_handle(unsigned int s_dev/i\
static char *path_of_mounted_file(unsigned int s_dev, unsigned long i_ino)\
{\
	struct mount_info *m;\
\
	for (m = mntinfo; m; m = m->next) {\
		struct stat st;\
		int root;\
\
		if (m->s_dev != s_dev || mnt_is_dir(m))\
			continue;\
		root = mntns_get_root_fd(m->nsid);\
		if (root < 0 || fstatat(root, m->ns_mountpoint, &st, AT_SYMLINK_NOFOLLOW))\
			continue;\
		if (st.st_ino == i_ino)\
			return xstrdup(m->ns_mountpoint + 1);\
	}\
	return NULL;\
}\
\
static bool mounted_as_file(unsigned int s_dev)\
{\
	struct mount_info *m;\
\
	for (m = mntinfo; m; m = m->next)\
		if (m->s_dev == s_dev && !mnt_is_dir(m))\
			return true;\
	return false;\
}\

/^	path = alloc_openable(s_dev, i_ino, f_handle);/i\
	if (mounted_as_file(s_dev)) {\
		path = path_of_mounted_file(s_dev, i_ino);\
		if (path)\
			goto out;\
	}\


# lines: 1
/^extern struct collect_image_info inotify_cinfo;/i\
extern bool inotify_overflows(struct file_desc *d);

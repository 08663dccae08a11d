/** What programs have as `PATH` in a sandbox from an image that sets none, so that `ENV PATH=/opt/bin:$PATH` adds to it. */
export const pathDefault = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'

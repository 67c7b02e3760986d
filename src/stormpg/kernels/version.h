/* XLA first asks a handler for its version. */
static int asked_for_version(XLA_FFI_CallFrame *frame) {
    XLA_FFI_Metadata_Extension *asked = (void *)frame->extension_start; /* the name of its base differs between versions */
    if (!asked || asked->extension_base.type != XLA_FFI_Extension_Metadata) return 0;
    asked->metadata->api_version.major_version = XLA_FFI_API_MAJOR;
    asked->metadata->api_version.minor_version = XLA_FFI_API_MINOR;
    return 1;
}
